// Command coredns is CoreDNS with the plugins that a cluster's DNS needs, for the cluster of processes (deploy/testcluster).
//
// Owns: the list of plugins.  Reads: a Corefile.  Never: used outside tests.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	dnsserver.Directives = []string{"ready", "errors", "kubernetes"} // in the order of their work
	coremain.Run()
}
