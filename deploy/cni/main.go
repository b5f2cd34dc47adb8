// Command navarch-cni redirects the traffic of Pods with a sidecar as a chained CNI plugin, so that their containers do
// not need the capability NET_ADMIN. A container runtime calls it for every Pod. `navarch-cni install`, which a
// DaemonSet runs on each node, puts the plugin into the chain, and redirects Pods that started before that.
//
// Owns: its entry in the node's CNI configuration, its kubeconfig, its program. Reads: Pods. Never: deletes a Pod;
// removes a Pod's rules; lets a Pod start without its rules.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process at once
	if command := os.Getenv("CNI_COMMAND"); command != "" {
		os.Exit(plugin(ctx, environment(os.Getenv), os.Stdin, os.Stdout))
	}
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "navarch-cni:", err)
		os.Exit(1)
	}
}

// run runs the command `install` or `uninstall`.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || args[0] != "install" && args[0] != "uninstall" {
		return fmt.Errorf("want `install` or `uninstall`; a container runtime says what it wants in CNI_COMMAND")
	}
	i := installer{log: slog.New(slog.NewTextHandler(out, nil))}
	f := flag.NewFlagSet("navarch-cni "+args[0], flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&i.binDir, "bin-dir", "/host/opt/cni/bin", "The node's folder of CNI plugins, as this container sees it.")
	f.StringVar(&i.confDir, "conf-dir", "/host/etc/cni/net.d", "The node's folder of CNI configurations, as this container sees it.")
	f.StringVar(&i.hostConfDir, "host-conf-dir", "/etc/cni/net.d", "The same, as the node sees it.")
	f.StringVar(&i.serviceAccount, "service-account",
		"/var/run/secrets/kubernetes.io/serviceaccount", "Token and CA by which the plugin reads Pods.")
	f.StringVar(&i.node, "node", os.Getenv("NODE_NAME"), "This node, whose Pods are repaired; empty: none are.")
	f.StringVar(&i.proc, "proc", "/proc", "The node's processes (hostPID), by which network namespaces of Pods are found.")
	f.Func("exclude-namespace", "A namespace whose Pods are left alone; may be repeated.", func(ns string) error {
		i.exclude = append(i.exclude, ns)
		return nil
	})
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "uninstall" {
		return i.uninstall()
	}
	return i.run(ctx)
}
