"""Kinds of files: a module each, with a subclass of :class:`fairfix.data.files.FileSource`, found by its endings.

``parts`` says which pieces of the files can be read on their own, ``writer`` how ``predict`` writes one.
"""
