"""Plugins that are wrong, each in one way, under the suite that must find it out. Run by `tests/testing/test_wrong.py`.

`fails` names the checks that fail, all others pass; `may` those that fail on an unlucky order. Where `most` is set, so
little works that other checks may fail too.
"""
