"""Takes posteriordb's data; gives its 46 posteriors with reference draws as NumPyro models.

``python -m benchmarks.posteriordb`` checks every translation: long NUTS runs of the models here
must agree with posteriordb's reference draws. `benchmarks.posteriordb.suite` gives the posteriors
by name.

Data and reference draws are no part of this repository. They are posteriordb's, under the 3-clause
BSD licence that its LICENCE file states (some of its text is under CC BY 4.0); `database` says how
to get them. The models are our own programs for the densities that posteriordb describes.
"""
