package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/store/loop"
)

// waitCommand is the proxy's postStart hook where the application is held until the proxy has started: Kubernetes starts the next container of the Pod
// once the hook of this one has ended.
func waitCommand(o *options) *cobra.Command {
	timeout := time.Minute
	cmd := &cobra.Command{
		Use: "wait", Short: "Wait until the agent of this Pod is ready, as /healthz/ready says", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return waitReady(ctx, o.statusAddr)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "Fail after this time: Kubernetes then starts the container again.")
	return cmd
}

func waitReady(ctx context.Context, address string) error {
	const pause = 200 * time.Millisecond
	var last error
	for {
		if last = ask(ctx, http.MethodGet, address, "/healthz/ready"); last == nil {
			return nil
		}
		if err := loop.Pause(ctx, pause); err != nil {
			return fmt.Errorf("the agent is not ready: %w", last)
		}
	}
}

// drainCommand is the proxy's preStop hook where it is a sidecar container: its SIGTERM comes once the application has ended, so until then clients would
// find an endpoint that is about to go.
func drainCommand() *cobra.Command {
	port := 15020
	cmd := &cobra.Command{
		Use: "drain", Short: "Have the Envoy of this Pod send its clients away; it goes on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port == 0 {
				return nil // the agent does not answer for the Pod
			}
			return ask(cmd.Context(), http.MethodPost, fmt.Sprintf(":%d", port), "/drain")
		},
	}
	cmd.Flags().IntVar(&port, "stats-port", port, "Port of the agent's --stats-addr; 0: nothing is done.")
	return cmd
}

// ask sends a request to the agent of this Pod, at an address of which the port counts.
func ask(ctx context.Context, method, address, path string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort("localhost", port)+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
