package main

import (
	"cmp"
	"encoding/json"
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
	text := func(v any) string { return strings.TrimSuffix(fmt.Sprint(cmp.Or(v, any(""))), "<nil>") }
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
				names = append(names, fmt.Sprintf("%s %v: %v", t.Noun(), r["name"], r["error"]))
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
		Use:       "proxy-config all|cluster|listener|route|endpoint NAME.NAMESPACE",
		Aliases:   []string{"pc"},
		Short:     "Print what the control plane sent to a proxy, or (--envoy) what the proxy says it has",
		ValidArgs: []string{"all", "cluster", "listener", "route", "endpoint"},
		Args:      cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			nouns := []string{args[0]}
			if args[0] == "all" {
				nouns = []string{"cluster", "listener", "route", "endpoint"}
			} else if xds.ParseNoun(args[0]) == xds.Unknown {
				return fmt.Errorf("unknown type %q: all, cluster, listener, route or endpoint", args[0])
			}
			if envoy != "" {
				return envoyConfig(cmd, envoy, nouns, format)
			}
			if len(args) != 2 {
				return errors.New("which proxy? NAME.NAMESPACE, or --envoy ADDR")
			}
			query := url.Values{"proxyID": {args[1]}, "types": {strings.Join(nouns, ",")}}
			var dump map[string][]map[string]any
			if err := fetch(cmd.Context(), server, "/debug/config_dump?"+query.Encode(), &dump); err != nil {
				return err
			}
			if format != "table" {
				return format.print(cmd.OutOrStdout(), dump)
			}
			for _, noun := range nouns {
				if err := table(cmd.OutOrStdout(), configRows(noun, dump[noun+"s"])); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&server, "server", "127.0.0.1:8080", "Address of navarchd's debug pages.")
	cmd.Flags().StringVar(&envoy, "envoy", "", "Address of an Envoy's admin interface, for example 127.0.0.1:15000.")
	format.bind(cmd, "table", "json", "yaml")
	return cmd
}

// configRows is a short table of one type.
func configRows(noun string, all []map[string]any) [][]string {
	columns := map[string][]string{
		"cluster":  {"name", "type", "lb_policy", "connect_timeout"},
		"listener": {"name", "address", "traffic_direction"},
		"route":    {"name", "virtual_hosts"},
		"endpoint": {"cluster_name", "endpoints"},
	}[noun]
	heading := make([]string, len(columns))
	for i, c := range columns {
		heading[i] = strings.ToUpper(c)
	}
	rows := [][]string{heading}
	for _, resource := range all {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = cell(resource[c])
		}
		rows = append(rows, row)
	}
	return rows
}

// cell prints a value short: lists by the names of what is in them.
func cell(v any) string {
	switch t := v.(type) {
	case nil:
		return "-"
	case string:
		return t
	case []any:
		var parts []string
		for _, one := range t {
			parts = append(parts, cell(one))
		}
		return strings.Join(parts, " ")
	case map[string]any:
		for _, key := range []string{"name", "socket_address", "lb_endpoints", "endpoint", "address"} {
			if inner, ok := t[key]; ok {
				if address, ok := inner.(map[string]any); ok && key == "socket_address" {
					return fmt.Sprintf("%v:%v", address["address"], address["port_value"])
				}
				return cell(inner)
			}
		}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// envoyConfig prints Envoy's own config_dump, resource by resource.
func envoyConfig(cmd *cobra.Command, address string, nouns []string, format output) error {
	resources := map[string][]string{
		"cluster":  {"dynamic_active_clusters", "dynamic_warming_clusters"},
		"listener": {"dynamic_listeners"},
		"route":    {"dynamic_route_configs"},
		"endpoint": {"dynamic_endpoint_configs"},
	}
	all := map[string][]any{}
	for _, noun := range nouns {
		all[noun+"s"] = []any{}
		for _, resource := range resources[noun] {
			path := "/config_dump?resource=" + resource
			if noun == "endpoint" {
				path += "&include_eds"
			}
			var dump struct{ Configs []any }
			if err := fetch(cmd.Context(), address, path, &dump); err != nil {
				if strings.Contains(err.Error(), "not found in config dump") {
					continue // Envoy's word for: there are none
				}
				return err
			}
			all[noun+"s"] = append(all[noun+"s"], dump.Configs...)
		}
	}
	if format == "table" {
		format = "yaml"
	}
	return format.print(cmd.OutOrStdout(), all)
}
