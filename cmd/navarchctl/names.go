package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/cluster"
)

// target selects the proxy and the control plane.
type target struct {
	controlPlane
	namespace string
}

func (t *target) bind(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	t.controlPlane.bind(f)
	f.StringVarP(&t.namespace, "namespace", "n", "", "Namespace of a NAME without one.")
}

// resolve returns the name of a proxy for requests. NAME.NAMESPACE and a node's id stay as they are, and KIND/NAME is
// resolved by ofObject. NAME alone gets the stated namespace, or that of the only proxy with this name. Prefixes of
// names are not completed.
func (t *target) resolve(ctx context.Context, name string) (string, error) {
	switch {
	case strings.Contains(name, "/"):
		return t.ofObject(ctx, name)
	case strings.ContainsAny(name, ".~"):
		return name, nil
	case t.namespace != "":
		return name + "." + t.namespace, nil
	}
	all, err := t.connected(ctx)
	if err != nil {
		return "", err
	}
	found := slices.DeleteFunc(all, func(proxy string) bool { return proxy[:max(strings.LastIndexByte(proxy, '.'), 0)] != name })
	switch len(found) {
	case 0:
		return "",
			fmt.Errorf("no proxy %q is connected to %s: NAME.NAMESPACE, or NAME with --namespace, in full (navarchctl proxy-status lists them)",
				name, t.where)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d proxies have the name %q: %s; state the namespace", len(found), name, strings.Join(found, ", "))
}

// connections is the used part of /debug/connections.
type connections struct {
	Clients []struct {
		Proxy string `json:"proxy"`
	} `json:"clients"`
}

// connected lists the proxies of all replicas that answer, sorted, without duplicates.
func (t *target) connected(ctx context.Context) ([]string, error) {
	answers, err := gather[connections](ctx, &t.controlPlane, "/debug/connections", io.Discard)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, a := range answers {
		for _, c := range a.value.Clients {
			all = append(all, c.Proxy)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// completionPatience bounds a shell's wait for names.
const completionPatience = 2 * time.Second

// complete offers the connected proxies; nothing if no replica answers.
func (t *target) complete(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil { // cobra sets no context for the completion of a command that does not run
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	all, err := t.connected(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, proxy := range all {
		if name, ok := strings.CutSuffix(proxy, "."+t.namespace); ok && t.namespace != "" {
			proxy = name
		} else if t.namespace != "" {
			continue
		}
		if strings.HasPrefix(proxy, begun) {
			out = append(out, proxy)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completesProxies offers the connected proxies for flags, or names of files for a node beside a folder.
func (q *walks) completesProxies(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			if q.offline.configDir != "" {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return q.complete(cmd, nil, begun)
		}); err != nil {
			panic(err) // the flag was not bound
		}
	}
}

// completes offers a closed set of words for a flag.
func completes(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was not bound
	}
}

// completeContexts makes --context of all commands offer the contexts of the kubeconfig.
func completeContexts(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeContexts(sub)
		if sub.Flags().Lookup("context") == nil && sub.PersistentFlags().Lookup("context") == nil {
			continue
		}
		if err := sub.RegisterFlagCompletionFunc("context", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return cluster.Contexts(cmd.Flag("kubeconfig").Value.String()), cobra.ShellCompDirectiveNoFileComp
		}); err != nil {
			panic(err) // the flag was not bound
		}
	}
}
