#!/bin/bash
# What ABCI made of Grid Engine: `-l rt_F=N` is N whole nodes, by a parallel environment with one slot on each.
. $sge/util/resources/jsv/jsv_include.sh

jsv_on_start() { :; }

jsv_on_verify() {
  local nodes
  nodes=$$(jsv_sub_get_param l_hard rt_F)
  if [ -z "$$nodes" ]; then
    jsv_accept "not asked for by the node"
    return
  fi
  jsv_set_param pe_name rt_F
  jsv_set_param pe_min "$$nodes"
  jsv_set_param pe_max "$$nodes"
  jsv_sub_add_param l_hard rt_F 1
  jsv_correct "whole nodes"
}

jsv_main
