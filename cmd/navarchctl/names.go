package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
)

// target has the flags that select a control plane, and the namespace of a proxy.
type target struct {
	controlPlane
	namespace string
	asked     string // resolved name of the proxy, for the suggested next command
}

func (t *target) bind(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	t.controlPlane.bind(f)
	f.StringVarP(&t.namespace, "namespace", "n", "", "Namespace of a NAME without one.")
}

// resolve returns the name of a proxy for use in requests: NAME.NAMESPACE or a node's id. A name in one of these two
// forms is returned unchanged, without a check that the proxy is connected. For KIND/NAME, resolve calls ofObject. A
// plain NAME gets the namespace of --namespace. Without this flag, NAME gets the namespace of the only connected proxy
// with exactly this name. It is an error if no connected proxy, or more than one, has the name.
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

// splitProxy splits NAME.NAMESPACE. Names of Pods may have dots. The result ok is false for another form, such as a
// node's id.
func splitProxy(proxy string) (name, namespace string, ok bool) {
	at := strings.LastIndexByte(proxy, '.')
	if at <= 0 || strings.Contains(proxy, "~") {
		return "", "", false
	}
	return proxy[:at], proxy[at+1:], true
}

// connections decodes the names of proxies in /debug/connections.
type connections struct {
	Clients []struct {
		Proxy string `json:"proxy"`
	} `json:"clients"`
}

// connected returns the names (NAME.NAMESPACE) of the proxies of all replicas that answer, sorted and without
// duplicates. It is an error if no replica answers.
func (t *target) connected(ctx context.Context) (names []string, err error) {
	fleets, err := t.fleets(ctx)
	for i := range fleets {
		var all fleetapi.Answer[fleetapi.Proxy]
		if err == nil {
			all, err = askAll[fleetapi.Proxy](ctx, &fleets[i], "proxies", url.Values{})
		}
		if err == nil && len(fleets[i].found) > 1 && slices.ContainsFunc(all.Partial, unable) {
			err = errAskEach
		}
		names = append(names, proxyNames(all.Items)...)
	}
	if errors.Is(err, errAskEach) || errors.Is(err, errNoAPI) {
		names, err = t.listed(ctx)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// listed returns the names at /debug/connections of each replica, for replicas that cannot query each other, or are of
// an older version. It is an error if no replica answers.
func (t *target) listed(ctx context.Context) (names []string, err error) {
	answers, err := gather[connections](ctx, &t.controlPlane, "/debug/connections", io.Discard)
	for _, a := range answers {
		for _, c := range a.value.Clients {
			names = append(names, c.Proxy)
		}
	}
	return names, err
}
