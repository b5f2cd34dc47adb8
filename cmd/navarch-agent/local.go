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

// waitCommand returns the command of the proxy's postStart hook, for Pods whose application starts after the proxy.
// Kubernetes starts the next container of the Pod once this hook has ended.
func waitCommand(o *options) *cobra.Command {
	timeout := time.Minute
	cmd := &cobra.Command{
		Use: "wait", Short: "Wait until /healthz/ready of this Pod's agent reports ready", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return waitReady(ctx, o.statusAddr)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "Fail after this time: Kubernetes then starts the container again.")
	return cmd
}

// waitReady polls the agent's readiness every 200 ms until the agent is ready or ctx ends. The returned error wraps the
// error of the last request.
func waitReady(ctx context.Context, address string) error {
	const pause = 200 * time.Millisecond
	var last error
	for {
		if last = request(ctx, http.MethodGet, address, "/healthz/ready"); last == nil {
			return nil
		}
		if err := loop.Pause(ctx, pause); err != nil {
			return fmt.Errorf("the agent is not ready: %w", last)
		}
	}
}

// drainCommand returns the command for the proxy's preStop hook if the proxy is a sidecar container. Such a proxy gets
// SIGTERM only after the application has ended. Without the hook, clients would use this Pod until the application has
// ended.
func drainCommand() *cobra.Command {
	port := 15020
	cmd := &cobra.Command{
		Use: "drain", Short: "Start a graceful drain of this Pod's Envoy; Envoy keeps running", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port == 0 {
				return nil // the agent does not answer for the Pod
			}
			return request(cmd.Context(), http.MethodPost, fmt.Sprintf(":%d", port), "/drain")
		},
	}
	cmd.Flags().IntVar(&port, "stats-port", port, "Port of the agent's --stats-addr; 0: nothing is done.")
	return cmd
}

// request sends a request to the agent of this Pod, at localhost and the port in address. The time limit is 5 s.
// request returns an error if address has no port, if there is no response, or if the status is not 200.
func request(ctx context.Context, method, address, path string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort("localhost", port)+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
