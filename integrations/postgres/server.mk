# The extension for one server, in the current directory. Makefile calls it, with VPATH, PG_CONFIG, RUST, CARGO_TARGET_DIR.
#
# The decisions are Rust, a static library that cargo builds first; all else is C over PGXS.

rust := $(RUST)

MODULE_big = forebay
EXTENSION = forebay
DATA = sql/forebay--0.1.sql
REGRESS = setup settings privileges index_scan cursor join uninstall
ISOLATION = concurrent
OBJS = $(patsubst $(VPATH)/src/%.c,%.o,$(sort $(wildcard $(VPATH)/src/*.c)))
vpath %.c $(VPATH)/src

CARGO ?= cargo
LOOKAHEAD = libforebay_lookahead_c.a

PG_CPPFLAGS = -I$(VPATH)/src -I$(rust)/crates/lookahead-c/include
PG_CFLAGS = -Wextra -Werror=implicit-function-declaration -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
# Of the library, only what the C code calls is kept, and none of it is visible outside.
SHLIB_LINK = $(LOOKAHEAD) -Wl,--exclude-libs,ALL -Wl,--gc-sections

# No bitcode: nothing of it would be inlined, and clang is one more thing to install.
override with_llvm = no

major := $(shell $(PG_CONFIG) --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

ifeq ($(PORTNAME), darwin)
SHLIB_LINK = $(LOOKAHEAD)
endif

$(shlib): $(LOOKAHEAD)

$(OBJS): $(wildcard $(VPATH)/src/*.h) $(rust)/crates/lookahead-c/include/forebay_lookahead.h

# Preloaded, a library that another major version's headers went into keeps the server from starting.
install-lib-shared: verify

.PHONY: verify lookahead
verify: $(shlib)
	@grep -q 'built for PostgreSQL $(major)[^0-9]' $< || { \
		echo "$(abspath $<) was not built for PostgreSQL $(major), the version of $(PG_CONFIG). The headers in" \
			"$(shell $(PG_CONFIG) --includedir-server) must be of that version: install those, run make clean, then make."; \
		exit 1; } >&2

# Cargo knows itself whether there is anything to do. Where there is none, as often under sudo, what was built is taken.
# The empty recipe has make look at the file again, and link again what has changed.
$(LOOKAHEAD): lookahead ;

lookahead:
	@if command -v $(CARGO) >/dev/null; then \
		$(CARGO) build --release --quiet --manifest-path $(rust)/Cargo.toml --target-dir $(CARGO_TARGET_DIR) -p forebay-lookahead-c && \
		ln -sf $(CARGO_TARGET_DIR)/release/$(LOOKAHEAD) $(LOOKAHEAD); \
	elif [ ! -e $(LOOKAHEAD) ]; then \
		echo "$(CARGO) is not on the PATH: install Rust, or give CARGO=/path/to/cargo" >&2; exit 1; \
	fi
