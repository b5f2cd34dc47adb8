package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/xds"
)

// proxyConfig contains the flags of all commands below proxy-config.
type proxyConfig struct {
	source
	filter   show.Filter
	format   output
	exitCode bool
}

func proxyConfigCommand() *cobra.Command {
	c := &proxyConfig{}
	cmd := &cobra.Command{
		Use:     "proxy-config",
		Aliases: []string{"pc"},
		Short:   "Print what a proxy was sent, or (--envoy) what the proxy says it has",
		Long: `Prints clusters, listeners, routes, endpoints or secrets of one proxy, as navarchd sent them, as the proxy has them (--envoy: ADDR
of its admin interface), or of a saved dump (--file). The replica that the proxy is connected to is found by the kubeconfig, or is at --server.

A column STATUS marks the resources that the proxy refused, and those that are withheld from it because several proxies refused
them; the lines below the table give the reasons. The resource that is shown is the one that the proxy has.

navarchd's dump (/debug/config_dump?proxyID=NAME.NAMESPACE) has the format of Envoy's, so that istioctl proxy-config reads it
too (--file; its endpoints command wants Envoy's /clusters, its eds command reads the dump). The bootstrap, static resources,
statistics and whether an endpoint was ejected are known to Envoy alone: ask it with --envoy.`,
		Example: `  # Routes that navarchd sent to a proxy.
  navarchctl proxy-config routes web-5d4f8c7b9-aaaaa.shop

  # The clusters of one service that an Envoy has.
  navarchctl pc c --envoy 127.0.10.1:15000 --fqdn catalog.shop.svc.cluster.local

  # Without a server.
  curl -s '127.0.10.1:15000/config_dump?include_eds' >dump.json
  navarchctl pc listeners -f dump.json --port 8000`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if args[0] == "bootstrap" {
				return errors.New("only Envoy has its bootstrap: curl 127.0.0.1:15000/config_dump?mask=bootstrap")
			}
			return fmt.Errorf("unknown type %q: all, cluster, listener, route, endpoint or secret", args[0])
		},
	}
	c.source.bind(cmd)
	c.format.bindRows(cmd)
	cmd.PersistentFlags().BoolVar(&c.exitCode, "exit-code", false, "Exit with 1 where something was refused or is withheld.")
	for _, k := range kinds {
		cmd.AddCommand(c.command(k))
	}
	return cmd
}

// resourceKind describes one command below proxy-config.
type resourceKind struct {
	use     string
	aliases []string
	types   []xds.Type // types of the printed resources
	flags   []string   // names of its filter flags
	shows   string     // description of its output, for the help text
	example string     // flags in the example of the help text
}

var kinds = []resourceKind{
	{"all", []string{"a"}, []xds.Type{xds.Cluster, xds.Listener, xds.Route, xds.Endpoint},
		[]string{"fqdn", "subset", "direction", "port", "name", "address", "type", "cluster", "status"},
		"clusters, listeners, routes and endpoints", "-o json"},
	{"cluster", []string{"clusters", "c"}, []xds.Type{xds.Cluster}, []string{"fqdn", "subset", "direction", "port"},
		"host, port, subset and direction of each cluster, how Envoy finds its endpoints, and the DestinationRule",
		"--fqdn catalog.shop.svc.cluster.local --direction outbound"},
	{"listener", []string{"listeners", "l"}, []xds.Type{xds.Listener}, []string{"address", "port", "type"},
		"a line for each filter chain: which connections it takes (SNI, transport and application protocol, destination, source), and" +
			" where they go: a cluster, a route configuration, or routes that stand in the listener",
		"--port 8000 --type HTTP"},
	{"route", []string{"routes", "r"}, []xds.Type{xds.Route}, []string{"name"},
		"a line for each route: its route configuration, virtual host, domains, what a request must have, and the VirtualService", "--name 8000"},
	{"endpoint", []string{"endpoints", "ep"}, []xds.Type{xds.Endpoint}, []string{"address", "port", "cluster", "status"},
		"a line for each endpoint; health that is not stated is HEALTHY, as Envoy reads it. OUTLIER CHECK is known to Envoy alone: FAILED," +
			" it is ejected; -, it was not asked",
		"--cluster 'outbound|8000||catalog.shop.svc.cluster.local'"},
	{"secret", []string{"secrets", "s"}, []xds.Type{xds.Secret}, nil,
		"a line for each certificate and revocation list. Certificates of the mesh are between a proxy and its agent: ask the proxy" +
			" (--envoy); a server has those of Kubernetes Secrets", ""},
	{"extension", []string{"extensions", "ecds"}, []xds.Type{xds.Extension}, nil,
		"a line for each configuration of a filter that is discovered (ECDS): those of WasmPlugins, TrafficExtensions and of EnvoyFilters" +
			" with applyTo EXTENSION_CONFIG", ""},
}

func (c *proxyConfig) command(k resourceKind) *cobra.Command {
	cmd := &cobra.Command{
		Use:     k.use + " [NAME[.NAMESPACE]|KIND/NAME]",
		Aliases: k.aliases,
		Short:   "Print " + map[bool]string{true: k.shows, false: k.use + "s"}[k.use == "all"],
		Long:    "Prints " + k.shows + ".",
		Example: fmt.Sprintf("  navarchctl proxy-config %[1]s web-5d4f8c7b9-aaaaa.shop %[2]s\n"+
			"  navarchctl pc %[3]s --envoy 127.0.10.1:15000",
			k.use, k.example, k.aliases[len(k.aliases)-1]),
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := c.read(cmd.Context(), cmd.InOrStdin(), args, k.types)
			if err != nil {
				return err
			}
			err = c.format.write(cmd, rows{value: c.selected(d, k.types), names: c.names(d, k.types),
				table: func(w io.Writer, wide bool) error { return c.tables(w, d, k.types, wide) },
				next:  c.next(d, k.types)})
			if err == nil && c.exitCode && c.marked(d, k.types) {
				return errMarked
			}
			return err
		},
	}
	if k.use != "extension" { // Envoy's dump has a section of extensions only if the proxy has some
		cmd.Example += fmt.Sprintf("\n  navarchctl pc %s -f dump.json -o yaml", k.aliases[len(k.aliases)-1])
	}
	c.filters(cmd, k.flags)
	return cmd
}

// filters adds the filter flags of a type.
func (c *proxyConfig) filters(cmd *cobra.Command, names []string) {
	f := cmd.Flags()
	for _, name := range names {
		switch name {
		case "fqdn":
			f.StringVar(&c.filter.FQDN, name, "", "Clusters whose host has this text.")
		case "subset":
			f.StringVar(&c.filter.Subset, name, "", "Clusters whose subset has this text.")
		case "direction":
			chosen(cmd, &c.filter.Direction, name, "Clusters of this direction: ", "inbound", "outbound")
		case "port":
			f.Uint32Var(&c.filter.Port, name, 0, "Clusters, listeners, endpoints with this port.")
		case "name":
			f.StringVar(&c.filter.Name, name, "", "The route configuration with this name.")
		case "address":
			f.StringVar(&c.filter.Address, name, "", "Listeners, endpoints with this address.")
		case "type":
			chosen(cmd, &c.filter.Type, name, "Listeners of this type: ", "HTTP", "TCP", "HTTP+TCP")
		case "cluster":
			f.StringVar(&c.filter.Cluster, name, "", "Endpoints of this cluster.")
		case "status":
			chosen(cmd, &c.filter.Status, name, "Endpoints of this health: ", "healthy", "unhealthy", "draining", "degraded", "timeout")
		}
	}
}

// chosen adds a filter flag with a closed set of words.
func chosen(cmd *cobra.Command, into *string, flag, what string, words ...string) {
	cmd.Flags().Var(&choice{into, "word", words}, flag, what+strings.Join(words, ", ")+".")
	completes(cmd, flag, words...)
}

// names returns the names of the selected resources.
func (c *proxyConfig) names(d *dump.Dump, types []xds.Type) (names []string) {
	for _, t := range types {
		for _, r := range show.Select(d, t, c.filter) {
			names = append(names, r.Name)
		}
	}
	return names
}

// next suggests the command explain for one resource. It chooses the first selected resource that was refused or is
// withheld. If there is no such resource, it chooses the first selected resource. It returns nil if no resource is
// selected, or if the dump is not from a control plane.
func (c *proxyConfig) next(d *dump.Dump, types []xds.Type) func(*cobra.Command, output) {
	var first, failed string
	for _, t := range types {
		for _, r := range show.Select(d, t, c.filter) {
			if first = cmp.Or(first, r.Name); r.Failure != nil {
				failed = cmp.Or(failed, r.Name)
			}
		}
	}
	if c.asked == "" || first == "" {
		return nil
	}
	return nextIs("which objects made it", "explain", "--proxy", c.asked, cmp.Or(failed, first))
}

// tables prints one table for each type.
func (c *proxyConfig) tables(w io.Writer, d *dump.Dump, types []xds.Type, wide bool) error {
	for i, t := range types {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := show.Config(w, d, t, c.filter, wide); err != nil {
			return err
		}
	}
	return nil
}

// selected returns the output of -o json: the resources of the dump by type, and the refused and withheld resources.
// Load assignments contain the selected endpoints only.
func (c *proxyConfig) selected(d *dump.Dump, types []xds.Type) map[string]any {
	type failure struct {
		Type string `json:"type"`
		Name string `json:"name"`
		*dump.Failure
	}
	out := map[string]any{}
	var failures []failure
	for _, t := range types {
		resources := []any{}
		for _, r := range show.Select(d, t, c.filter) {
			if r.Raw != nil {
				resources = append(resources, withoutType(show.Narrowed(r, c.filter)))
			}
			if r.Failure != nil {
				failures = append(failures, failure{t.Noun(), r.Name, r.Failure})
			}
		}
		out[t.Noun()+"s"] = resources
	}
	if failures != nil {
		out["failures"] = failures
	}
	return out
}

// marked reports whether a selected resource was refused or is withheld.
func (c *proxyConfig) marked(d *dump.Dump, types []xds.Type) bool {
	for _, t := range types {
		for _, r := range show.Select(d, t, c.filter) {
			if r.Failure != nil {
				return true
			}
		}
	}
	return false
}

// withoutType returns a resource without the type URL of its Any. If raw is not a JSON object, it returns raw.
func withoutType(raw json.RawMessage) any {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	delete(fields, "@type")
	return fields
}
