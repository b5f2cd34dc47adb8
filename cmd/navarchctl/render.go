package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

func renderCommand() *cobra.Command {
	var (
		from   offline
		noun   string
		strict bool
		format output
	)
	cmd := &cobra.Command{
		Use:   "render --config-dir DIR --proxy NODE.json",
		Short: "Print what a proxy would get, without a server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var wanted []xds.Type
			if noun != "" {
				t := xds.ParseNoun(noun)
				if t == xds.Unknown {
					return fmt.Errorf("--type: unknown type %q: cluster, endpoint, listener, route or secret", noun)
				}
				wanted = append(wanted, t)
			}
			planner, proxy, problems, err := from.plan()
			if err != nil {
				return err
			}
			planned := planner.Problems()
			report(cmd.ErrOrStderr(), problems)
			for _, p := range planned {
				fmt.Fprintln(cmd.ErrOrStderr(), p)
			}
			rendered, err := inspect.Render(inspect.Of(proxy.Set()), wanted...)
			if err != nil {
				return err
			}
			if err := format.print(cmd.OutOrStdout(), rendered); err != nil {
				return err
			}
			if strict && len(problems)+len(planned) > 0 {
				return errProblems
			}
			return nil
		},
	}
	from.bind(cmd)
	cmd.Flags().StringVar(&noun, "type", "", "Only this type: cluster, endpoint, listener, route, secret.")
	cmd.Flags().BoolVar(&strict, "strict", false, "Exit with 1 when the configuration has problems.")
	format.bind(cmd, "json", "yaml")
	for _, name := range []string{"config-dir", "proxy"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that was not bound
		}
	}
	return cmd
}

func explainCommand() *cobra.Command {
	var (
		from   offline
		server string
		format output
	)
	cmd := &cobra.Command{
		Use:   "explain --proxy NAME.NAMESPACE|NODE.json RESOURCE",
		Short: "Say which objects made a resource, or (--server) where a Secret of a gateway stands",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var found []inspect.Explanation
			switch {
			case server != "" && from.configDir != "":
				return errors.New("--server and --config-dir exclude each other")
			case server != "":
				query := url.Values{"proxyID": {from.proxy}, "resource": {args[0]}}
				if err := fetch(cmd.Context(), server, "/debug/explain?"+query.Encode(), &found); err != nil {
					return err
				}
			case from.configDir != "":
				planner, proxy, _, err := from.plan()
				if err != nil {
					return err
				}
				specs := func(t xds.Type, name string) []any { return planner.Explain(proxy, t, name) }
				if found = inspect.Explain(proxy.Set(), args[0], specs); len(found) == 0 {
					return fmt.Errorf("the proxy has no resource %q", args[0])
				}
			default:
				return errors.New("--server ADDR or --config-dir DIR is needed")
			}
			if format != "table" {
				return format.print(cmd.OutOrStdout(), found)
			}
			return explainTable(cmd.OutOrStdout(), found)
		},
	}
	from.bind(cmd)
	cmd.Flags().StringVar(&server, "server", "", "Address of navarchd's debug pages, for example 127.0.0.1:8080.")
	format.bind(cmd, "table", "json", "yaml")
	return cmd
}

func (o *offline) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.configDir, "config-dir", "", "Folder of Istio and Kubernetes YAML.")
	cmd.Flags().StringVar(&o.proxy, "proxy", "", "The proxy: file of an Envoy core.v3 Node, or NAME.NAMESPACE with --server.")
	cmd.Flags().StringVar(&o.cluster, "cluster-id", "Kubernetes", "Name of the cluster that the configuration is of.")
	cmd.Flags().StringVar(&o.domain, "domain", "cluster.local", "DNS domain of the cluster.")
}
