// Command coredns is CoreDNS with the plugins for a cluster's DNS, for the cluster of processes (deploy/testcluster).
//
// Owns: the list of plugins. Reads: a Corefile. Never: runs outside of tests.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	dnsserver.Directives = []string{"ready", "errors", "kubernetes"} // in the order of execution
	coremain.Run()
}
