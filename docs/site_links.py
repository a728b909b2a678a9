"""Links of the documentation, as they are on the site.

A page links to the files of the repository by relative paths, which a reader of the repository can follow. The site has
more pages than the folder docs (`ROOT_PAGES`), and no repository around it: every other file that a page links to is
copied below `repository/`. MkDocs calls the functions `on_...` of this hook.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[1]
ROOT_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")
COPIES = "repository/"
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
KEY = re.compile(r"<code>([\w.-]{16,})</code>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of the repository's root, and every file outside of docs that a page links to."""
    for name in ROOT_PAGES:
        files.append(_added(name, config))
    pages = [file for file in files if file.is_documentation_page()]
    while pages:
        page = pages.pop()
        for path in _linked(page.src_uri, page.content_string):
            uri = _on_site(path)
            if files.get_file_from_path(uri) is None and (REPOSITORY / path).is_file():
                files.append(added := _added(uri, config))
                if added.is_documentation_page():
                    pages.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Directs the links of a page to where the files are on the site."""
    uri = page.file.src_uri
    here = posixpath.dirname(uri)
    return LINK.sub(lambda link: posixpath.relpath(_on_site(_path(uri, link[1])), here or "."), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets a long key of the configuration be broken after a dot or an underscore, as narrow tables need it."""
    return KEY.sub(lambda key: "<code>" + re.sub(r"([._])(?=\w)", r"\1<wbr>", key[1]) + "</code>", html)


def _added(uri: str, config: MkDocsConfig) -> File:
    return File.generated(config, uri, abs_src_path=str(REPOSITORY / _in_repository(uri)))


def _linked(uri: str, markdown: str) -> Iterator[str]:
    """Paths in the repository that a page links to."""
    for link in LINK.findall(markdown):
        yield _path(uri, link)


def _path(uri: str, link: str) -> str:
    """The path in the repository that `link` means on the page `uri`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(_in_repository(uri)), link))


def _in_repository(uri: str) -> str:
    """Where a file of the site lies in the repository."""
    if uri in ROOT_PAGES:
        return uri
    return uri.removeprefix(COPIES) if uri.startswith(COPIES) else f"docs/{uri}"


def _on_site(path: str) -> str:
    """Where a file of the repository lies on the site; the first page stands for the repository's README."""
    if path in (*ROOT_PAGES, "README.md"):
        return path
    return path.removeprefix("docs/") if path.startswith("docs/") else COPIES + path
