// Package fidelity embeds the lists of the differences between our configuration of Envoys and istiod's. compare.py
// counts the places of their lines, and navarchctl compare applies the lines that hold in any mesh.
//
// Owns: nothing.  Reads: the lists.  Never: anything else.
package fidelity

import _ "embed"

// Sidecars has the lines of sidecars, and those of all proxies.
//
//go:embed differences.txt
var Sidecars string

// Gateways has the lines of gateways.
//
//go:embed gateways.txt
var Gateways string
