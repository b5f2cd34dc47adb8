// Command navarchd is the control plane. It reads configuration, stores it in etcd, and serves xDS to proxies. It is
// also the certificate authority and the server of the webhooks. Flags select its roles.
//
// Owns: the assembly of the process from the packages, and the start of its goroutines.
// Reads: flags and the environment.
// Never: computes configuration or verifies an identity itself; the packages that it calls do.
package main

import (
	"io"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/wire"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/cmd/navarchd/memory"
	_ "navarch.io/navarch/push/build/patch/envoytypes" // registers the message types that EnvoyFilters may name
	"navarch.io/navarch/store/obs"
)

func main() {
	c := &config{lines: &collect.Lines{}}
	cmd := &cobra.Command{
		Use:     "navarchd",
		Short:   "Control plane for Istio meshes: ingester and xDS replica",
		Version: obs.Version,
		// Charts start istiod with the arguments "pilot-discovery discovery".
		ValidArgs: []string{"discovery"},
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.validate(); err != nil {
				return err
			}
			log, levels, err := wire.ScopedLogger(io.MultiWriter(cmd.ErrOrStderr(), c.lines), c.logLevel)
			if err != nil {
				return err
			}
			c.levels, c.stated = levels, statedFlags(cmd.Flags())
			wire.TuneCollector(memory.CalmPercent)
			c.contained = wire.LimitMemory(log) > 0
			return run(cmd.Context(), c, log)
		},
	}
	c.bind(cmd.Flags())
	wire.Main(cmd)
}
