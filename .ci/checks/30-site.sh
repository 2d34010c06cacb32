# The site, without running its examples, and its links.
.venv/bin/pip install -q --find-links build/wheels -r build/docs.txt
.venv/bin/python -m sphinx -q -b html -W --keep-going -D plot_gallery=0 docs build/site
.venv/bin/python docs/check_links.py build/site
node docs/check_search.mjs build/site
