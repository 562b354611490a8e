# SPDX-License-Identifier: BSD-2-Clause
all check demo: ; @tools/bootstrap.sh $@ && tools/$(subst all,build,$@).sh
.PHONY: all check demo
