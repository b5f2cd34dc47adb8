// Command navarch-load measures a control plane with simulated proxies and synthetic meshes. The control plane is
// Navarch, istiod, or any other xDS server. The report contains latencies, processor time and memory by scenario.
//
// Owns: the processes that it starts. Reads: result files, /proc. Never: ends a process that it did not start; lets
// itself or a process that it starts listen on an address that is not loopback.
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
	cmd.AddCommand(runCommand(), listCommand(), meshCommand(),
		reportCommand(), compareCommand(), workerCommand(), attackCommand(), connectCommand())
	return cmd
}

// workerCommand returns the hidden command worker, which child processes of this program run. Each child simulates some
// of the proxies, because one process cannot always open enough files for all.
func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.NoArgs, Short: "Simulate proxies as told on standard input",
		RunE: func(cmd *cobra.Command, _ []string) error { return scene.Work(cmd.Context(), os.Stdin, os.Stdout) },
	}
}
