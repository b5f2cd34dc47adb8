package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/loadtest/proxy"
)

// connectCommand returns the command connect, which keeps simulated proxies connected to a running server, for tests of
// an autoscaler.
func connectCommand() *cobra.Command {
	var address, namespace string
	var count int
	var rate float64
	cmd := &cobra.Command{
		Use: "connect", Args: cobra.NoArgs, Short: "Keep proxies connected to a server until interrupted, and measure nothing",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if count < 1 || count > 50_000 {
				return fmt.Errorf("--proxies: %d; want 1 to 50,000", count)
			}
			fleet, err := proxy.New(proxy.Config{Addrs: []string{address}, JoinRate: rate, WarmTimeout: time.Minute})
			if err != nil {
				return err
			}
			defer fleet.Close()
			fleet.Add(simulated(namespace, count)...)
			if err := fleet.WaitJoined(ctx, count); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d proxies are connected\n", count)
			<-ctx.Done()
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "address", "", "host:port of xDS in plain text.")
	flags.StringVar(&namespace, "namespace", "default", "Namespace that the proxies say they are in.")
	flags.IntVar(&count, "proxies", 100, "Number of proxies.")
	flags.Float64Var(&rate, "rate", 50, "Number of proxies that connect per second.")
	_ = cmd.MarkFlagRequired("address") // the flag exists
	return cmd
}

// simulated returns the identities of count proxies. Their addresses are from 198.18.0.0/15, which RFC 2544 reserves
// for benchmarks.
func simulated(namespace string, count int) []proxy.Identity {
	all := make([]proxy.Identity, count)
	for i := range all {
		all[i] = proxy.Identity{Namespace: namespace, Name: fmt.Sprintf("simulated-%d", i),
			Workload: "simulated", IP: fmt.Sprintf("198.18.%d.%d", i>>8, i&255)}
	}
	return all
}
