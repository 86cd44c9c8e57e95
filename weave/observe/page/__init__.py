"""A recorded trace as one HTML page that needs nothing but a browser: to send to a colleague."""

from weave.observe.page.writing import render_page, write_page

__all__ = ["render_page", "write_page"]
