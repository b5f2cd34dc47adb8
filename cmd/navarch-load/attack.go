package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/loadtest/attack"
)

// attackFlags are the flags of the command attack.
type attackFlags struct {
	attack.Config
	sink             bool
	cert, key, token string
	span             time.Duration
	ready            int
}

// attackCommand returns the command attack. In the scenario hostile, this program runs it as a child process.
func attackCommand() *cobra.Command {
	f := &attackFlags{}
	cmd := &cobra.Command{
		Use: "attack", Args: cobra.NoArgs, Short: "Attack a server of this machine as a hostile neighbour would, and count the results",
		Long: "Attack a server of this machine as a hostile neighbour would, and count the results, as JSON. Only addresses of " +
			"loopback are possible.",
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Addr, "addr", "", "IP address of loopback and port: gRPC over TLS.")
	flags.BoolVar(&f.sink, "sink", false, "Attack a server in this process that discards everything.")
	flags.StringVar(&f.From, "from", "", "IP address of loopback that connections come from.")
	flags.StringVar(&f.cert, "cert", "", "File of a workload's certificate (default: only attacks that need none).")
	flags.StringVar(&f.key, "key", "", "File of the key of --cert.")
	flags.StringVar(&f.token, "token-file", "", "File of the token of --identity.")
	flags.StringVar(&f.Identity, "identity", "", "Identity of certificate and token: NAMESPACE/SERVICEACCOUNT.")
	flags.StringVar(&f.Victim, "victim", "", "Proxy of another identity that the attackers impersonate: NAMESPACE/SERVICEACCOUNT/POD.")
	flags.StringVar(&f.Proxy, "proxy", "", "Proxy of the identity, which requests for pages name: NAME.NAMESPACE.")
	flags.StringVar(&f.Group, "group", "", "WorkloadGroup of the identity, by which machines register themselves (default: vms).")
	flags.StringVar(&f.Pages, "pages", "", "IP address of loopback and port: HTTP with /debug (default: it is not attacked).")
	flags.StringVar(&f.Webhooks, "webhooks", "",
		"IP address of loopback and port: admission webhooks over TLS (default: they are not attacked).")
	flags.StringSliceVar(&f.Only, "only", nil, "Names of attacks (default: all).")
	flags.IntVar(&f.Connections, "connections", 1500, "Connections at once, 1,500 at most.")
	flags.BoolVar(&f.Even, "even", false, "All attacks get equally many connections (default: each gets its own share).")
	flags.IntVar(&f.Names, "names", 200_000, "Names that one stream subscribes to.")
	flags.DurationVar(&f.Hold, "hold", 20*time.Second, "Time after which a connection is closed that the server has not closed.")
	flags.DurationVar(&f.Pause, "pause", 20*time.Millisecond, "Time between two steps of one connection.")
	flags.DurationVar(&f.span, "for", 0, "Time until the command ends by itself (default: when it is interrupted).")
	flags.IntVar(&f.ready, "ready-fd", 0,
		"File descriptor that is closed as soon as an interruption ends the attacks with their counts (default: none).")
	cmd.MarkFlagsMutuallyExclusive("addr", "sink")
	cmd.MarkFlagsOneRequired("addr", "sink")
	cmd.MarkFlagsRequiredTogether("cert", "key", "token-file", "identity", "victim")
	return cmd
}

// run runs the attacks until the time of --for is over or the process is interrupted. It prints the counts of the
// results as JSON. run returns an error if a file of the credential cannot be read, the sink (the server of --sink)
// cannot be started, the file descriptor of --ready-fd cannot be closed, or attack.Run fails.
func (f *attackFlags) run(cmd *cobra.Command) error {
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("--cert: %w", err)
		}
		token, err := os.ReadFile(f.token)
		if err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
		f.Certificate, f.Token = &pair, strings.TrimSpace(string(token))
	}
	if f.sink {
		addr, pages, webhooks, stop, err := attack.Sink()
		if err != nil {
			return err
		}
		defer stop()
		f.Addr, f.Pages, f.Webhooks = addr, pages, webhooks
	}
	ctx := cmd.Context()
	if f.ready > 0 {
		if err := os.NewFile(uintptr(f.ready), "ready").Close(); err != nil {
			return fmt.Errorf("--ready-fd: %w", err)
		}
	}
	if f.span > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.span)
		defer cancel()
	}
	tally := &attack.Tally{}
	if err := attack.Run(ctx, f.Config, tally); err != nil {
		return err
	}
	return json.NewEncoder(cmd.OutOrStdout()).Encode(tally)
}
