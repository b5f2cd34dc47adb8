package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/migrate"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/admit/inject"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "migrate", Short: "Report the effect of an istiod's settings with Navarch",
		Example: "  navarchctl migrate values istiod-values.yaml"}
	cmd.AddCommand(migrateValuesCommand())
	return cmd
}

func migrateValuesCommand() *cobra.Command {
	var (
		in          cluster.Flags
		fromCluster bool
		file        string
		format      output
	)
	cmd := &cobra.Command{
		Use:   "values FILE|--cluster",
		Short: "Report what acts on each Helm value, flag and environment variable of an istiod",
		Long: `values reads the settings of an istiod. FILE (- is standard input) has its Helm values, its Deployment, an IstioOperator, or
several documents of these. With --cluster it reads the Deployment that runs, and the values that Helm keeps of its release. Without
such values it reads those of the ConfigMap istio-sidecar-injector. Each setting is

  decide     the chart has an equivalent that needs your decision first, such as the issuer of certificates; until then Navarch behaves differently
  reported   the setting is not acted on, and its effect is missing: check these settings
  acted on   the setting acts by a value of Navarch's chart
  no effect  Navarch works the same without the setting

With -o yaml the output is a file of values for Navarch's chart, with the settings that are acted on. All other settings are listed on standard error. -o json lists all
settings.

deploy/docs/migration.md has the whole table.`,
		Example: `  navarchctl migrate values istiod-values.yaml
  navarchctl migrate values -f istiod-values.yaml -o yaml > navarch-values.yaml
  navarchctl migrate values --cluster --context west --revision 1-30
  helm get values istiod -n istio-system -o yaml | navarchctl migrate values -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				args = append(args, file)
			}
			if len(args) > 1 || fromCluster == (len(args) == 1) {
				return errors.New("either a FILE or --cluster is needed")
			}
			all, err := settingsOf(cmd, &in, args)
			if err != nil {
				return err
			}
			if format == "yaml" {
				return cmp.Or(writeValues(cmd, format, all), unsettled(all))
			}
			r := rows{value: all, table: func(w io.Writer, wide bool) error { return settingsTable(w, all, wide) },
				next: nextIs("whether the cluster is ready for the chart", "check", "--pre")}
			for _, s := range all {
				r.names = append(r.names, s.Key)
			}
			return cmp.Or(format.write(cmd, r), unsettled(all))
		},
	}
	in.Bind(cmd.Flags())
	cmd.Flags().BoolVar(&fromCluster, "cluster", false, "Read the istiod that runs.")
	cmd.Flags().StringVarP(&file, "file", "f", "", "The FILE, as for helm; - is standard input.")
	format.bindRows(cmd)
	return cmd
}

// unsettled returns an error with the numbers of settings that the operator has to decide or that Navarch does not
// implement. It returns nil if there are no such settings.
func unsettled(all []migrate.Setting) error {
	n := map[migrate.Effect]int{}
	for _, s := range all {
		n[s.Effect]++
	}
	if n[migrate.Decide]+n[migrate.Reported] == 0 {
		return nil
	}
	return fmt.Errorf("settings to decide: %d; not acted on: %d", n[migrate.Decide], n[migrate.Reported])
}

// writeValues prints the values for Navarch's chart to standard output. It prints the settings that no value expresses
// to standard error.
func writeValues(cmd *cobra.Command, format output, all []migrate.Setting) error {
	values, rest := migrate.Values(all)
	if err := format.print(cmd.OutOrStdout(), values); err != nil {
		return err
	}
	if len(rest) == 0 {
		return nil
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "These settings are not among the values:")
	return settingsTable(cmd.ErrOrStderr(), rest, false)
}

// settingsTable prints settings as a table. Values over 40 characters are shortened unless wide.
func settingsTable(w io.Writer, all []migrate.Setting, wide bool) error {
	rows := [][]string{{"SORT", "KEY", "VALUE", "EFFECT", "HERE"}}
	for _, s := range all {
		value := s.Value
		if !wide {
			value = brief(value)
		}
		rows = append(rows, []string{string(s.Sort), s.Key, value, string(s.Effect), s.Here})
	}
	return show.Table(w, rows)
}

// brief shortens a value to at most 40 characters.
func brief(value string) string {
	const most = 40
	if runes := []rune(value); len(runes) > most {
		return string(runes[:most-3]) + "..."
	}
	return value
}

func settingsOf(cmd *cobra.Command, in *cluster.Flags, args []string) ([]migrate.Setting, error) {
	if len(args) == 0 {
		c, err := in.Open()
		if err != nil {
			return nil, err
		}
		return settingsOfCluster(cmd.Context(), c, cmd.ErrOrStderr())
	}
	text, err := contentOf(args[0], cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	all, err := migrate.FromYAML(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	return all, nil
}

// settingsOfCluster returns the settings of the istiod that runs in a cluster. It merges the settings of the Deployment
// with those of the Helm release's values. If Helm has no values, those of the ConfigMap istio-sidecar-injector are
// used instead. An unreadable Deployment is an error. For unreadable values it writes a line to warnings.
func settingsOfCluster(ctx context.Context, c *cluster.Cluster, warnings io.Writer) ([]migrate.Setting, error) {
	name := inject.NameOf("istiod", c.Revision)
	var d appsv1.Deployment
	if err := c.API.Do(ctx, http.MethodGet, "/apis/apps/v1/namespaces/"+
		url.PathEscape(c.Namespace)+"/deployments/"+url.PathEscape(name), nil, &d); err != nil {
		return nil, fmt.Errorf("%s, Deployment %s/%s: %w", c, c.Namespace, name, err)
	}
	values, err := releaseValues(ctx, c, d.Annotations["meta.helm.sh/release-name"])
	if err != nil {
		fmt.Fprintln(warnings, "warning: values of Helm's release:", err)
	}
	if values == nil {
		data, err := configMap(ctx, c.API, c.Namespace, inject.NameOf("istio-sidecar-injector", c.Revision))
		if err != nil {
			fmt.Fprintln(warnings, "warning:", err)
		}
		var tree map[string]any
		if err := yaml.Unmarshal([]byte(data["values"]), &tree); err != nil {
			fmt.Fprintln(warnings, "warning: ConfigMap istio-sidecar-injector, values:", err)
		}
		values = migrate.FromValues(tree)
	}
	return migrate.Merge(values, migrate.FromDeployment(&d)), nil
}

// releaseValues returns the settings in the values of a deployed Helm release. The settings are nil if the name is
// empty, if no Secret of the release exists, or if the chart of the release is not istiod's. releaseValues fails if the
// API server fails or the record is invalid.
func releaseValues(ctx context.Context, c *cluster.Cluster, release string) ([]migrate.Setting, error) {
	if release == "" {
		return nil, nil
	}
	var all corev1.SecretList
	selector := "owner=helm,status=deployed,name=" + release
	if err := c.API.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+
		url.PathEscape(c.Namespace)+"/secrets?labelSelector="+url.QueryEscape(selector), nil, &all); err != nil {
		return nil, err
	}
	for _, s := range all.Items {
		values, is, err := migrate.FromRelease(s.Data["release"])
		if err != nil || is {
			return values, err
		}
	}
	return nil, nil
}
