package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/push/xds"
)

func proxyStatusCommand() *cobra.Command {
	var (
		server string
		format output
	)
	cmd := &cobra.Command{
		Use:   "proxy-status [NAME.NAMESPACE]",
		Short: "Say which proxies are in sync, and what they refused",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []map[string]any
			if err := fetch(cmd.Context(), server, "/debug/syncz", &all); err != nil {
				return err
			}
			if len(args) == 1 {
				all = slices.DeleteFunc(all, func(p map[string]any) bool { return p["proxy"] != args[0] })
				if len(all) == 0 {
					return fmt.Errorf("proxy %q is not connected to %s", args[0], server)
				}
			}
			if format != "table" {
				return format.print(cmd.OutOrStdout(), all)
			}
			return table(cmd.OutOrStdout(), statusRows(all))
		},
	}
	cmd.Flags().StringVar(&server, "server", "127.0.0.1:8080", "Address of navarchd's debug pages.")
	format.bind(cmd, "table", "json", "yaml")
	return cmd
}

func statusRows(all []map[string]any) [][]string {
	rows := [][]string{{"NAME", "CLUSTER", "CDS", "LDS", "EDS", "RDS", "REVISION", "REFUSED"}}
	for _, p := range all {
		row := []string{text(p["proxy"]), text(p["cluster_id"])}
		for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Endpoint, xds.Route} {
			sent, subscribed := p[t.Noun()+"_sent"]
			switch {
			case !subscribed:
				row = append(row, "NOT ASKED")
			case p[t.Noun()+"_refused"] != nil:
				row = append(row, "REFUSED")
			case sent == p[t.Noun()+"_acked"]:
				row = append(row, "SYNCED")
			default:
				row = append(row, "PENDING")
			}
		}
		row = append(row, text(p["revision"]), refusedNames(p))
		rows = append(rows, row)
	}
	return rows
}

func refusedNames(p map[string]any) string {
	var names []string
	for t := range xds.NumTypes {
		list, _ := p[t.Noun()+"_refused"].([]any)
		for _, one := range list {
			if r, ok := one.(map[string]any); ok {
				made := ""
				if objects, _ := r["objects"].([]any); len(objects) > 0 {
					made = fmt.Sprintf(" (made by %v)", objects[0])
				}
				names = append(names, fmt.Sprintf("%s %v%s: %v", t.Noun(), r["name"], made, r["error"]))
			}
		}
	}
	return strings.Join(names, "; ")
}

func proxyConfigCommand() *cobra.Command {
	var (
		server, envoy string
		format        output
	)
	cmd := &cobra.Command{
		Use:       "proxy-config all|cluster|listener|route|endpoint|secret NAME.NAMESPACE",
		Aliases:   []string{"pc"},
		Short:     "Print what the control plane sent to a proxy, or (--envoy) what the proxy says it has",
		ValidArgs: []string{"all", "cluster", "listener", "route", "endpoint", "secret"},
		Args:      cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			nouns := []string{args[0]}
			if args[0] == "all" {
				nouns = []string{"cluster", "listener", "route", "endpoint"}
			} else if xds.ParseNoun(args[0]) == xds.Unknown {
				return fmt.Errorf("unknown type %q: all, cluster, listener, route, endpoint or secret", args[0])
			}
			if args[0] == "secret" && envoy == "" {
				return errors.New("certificates are between a proxy and its agent: ask the proxy, --envoy ADDR (its admin interface)")
			}
			if envoy != "" {
				all, err := envoyConfig(cmd.Context(), envoy, nouns)
				if err != nil {
					return err
				}
				return printConfig(cmd.OutOrStdout(), all, nouns, format)
			}
			if len(args) != 2 {
				return errors.New("which proxy? NAME.NAMESPACE, or --envoy ADDR")
			}
			query := url.Values{"proxyID": {args[1]}, "types": {strings.Join(nouns, ",")}}
			var all dump
			if err := fetch(cmd.Context(), server, "/debug/config_dump?"+query.Encode(), &all); err != nil {
				return err
			}
			return printConfig(cmd.OutOrStdout(), all, nouns, format)
		},
	}
	cmd.Flags().StringVar(&server, "server", "127.0.0.1:8080", "Address of navarchd's debug pages.")
	cmd.Flags().StringVar(&envoy, "envoy", "", "Address of an Envoy's admin interface, for example 127.0.0.1:15000.")
	format.bind(cmd, "table", "json", "yaml")
	return cmd
}
