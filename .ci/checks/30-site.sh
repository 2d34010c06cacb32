# The site, without running its examples, and its links. The extra "docs" names the package first, which is installed.
docs=$(.venv/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"][1:])')
.venv/bin/pip install -q $docs
.venv/bin/python -m sphinx -q -b html -W --keep-going -D plot_gallery=0 docs build/site
.venv/bin/python docs/check_links.py build/site
node docs/check_search.mjs build/site
