// Command navarch-load puts simulated proxies and synthetic meshes to a control plane, and reports what it cost: on
// Navarch, istiod, or any other server of the xDS protocol.
//
// Owns: the processes that it starts.  Reads: result files, /proc.  Never: ends a process that it did not start; listens
// on, or starts anything that listens on, other than loopback.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/wire"
	"navarch.io/navarch/loadtest/scene"
	"navarch.io/navarch/store/obs"
)

func main() {
	wire.TuneCollector(garbagePercent)
	wire.Main(root())
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "navarch-load",
		Short: "Measure a control plane with thousands of simulated proxies",
		Long: `Measure a control plane with thousands of simulated proxies.

  navarch-load run world-a --navarchd bin/navarchd --out out/load    start navarchd, play scenarios, write a report
  navarch-load run endpoint --address 127.0.0.1:15010 --pid 4711 --config-dir mesh    measure a server that runs already
  navarch-load compare old-*.json --with new-*.json    compare medians of interleaved runs`,
		Version:       obs.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(runCommand(), listCommand(), meshCommand(), reportCommand(), compareCommand(), workerCommand(), attackCommand(), connectCommand())
	return cmd
}

// workerCommand is what this program starts itself as, for more proxies than one process has files for.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.NoArgs, Short: "Simulate proxies as told on standard input",
		RunE: func(cmd *cobra.Command, _ []string) error { return scene.Work(cmd.Context(), os.Stdin, os.Stdout) },
	}
}
