package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// target selects the proxy and the control plane.
type target struct {
	controlPlane
	namespace string
	asked     string // the resolved name, for the next command
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
