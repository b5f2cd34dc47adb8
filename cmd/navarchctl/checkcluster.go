package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/cmd/navarchctl/check"
	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// precheck is the alias of check that means check --pre, as in istioctl.
const precheck = "precheck"

// errFailed ends check if a check failed.
var errFailed = errors.New("something is not as it has to be")

func checkCommand() *cobra.Command {
	var (
		in     cluster.Flags
		pre    bool
		format output
	)
	cmd := &cobra.Command{
		Use:     "check",
		Aliases: []string{precheck, "verify", "verify-install"},
		Short:   "Examine a control plane and what it needs of its cluster, and whether a workload would be served",
		Long: `check examines the API server, the definitions of Istio's kinds, and gateways; then, of each revision, the rights of its service
accounts, its leader and how far that is behind the cluster, its replicas and their clocks, etcd and the configuration as they see them, and the
webhooks: whether each replica would be believed, and, by dry runs, whether the API server calls them. Then it does at each replica what a workload
does: it shows the CA a token of the namespace's service account default, and asks for clusters by ADS. No certificate is issued.

Before there is a control plane, --pre looks at the API server, the definitions, gateways, webhooks that are in the way, and your own rights to install the
chart. A line is ok, unknown (you may not see it), warning, or failure, which ends the command with exit code 1.`,
		Example: `  navarchctl check
  navarchctl check --pre --context west
  navarchctl check --revision canary -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			results, err := looked(cmd.Context(), &in, pre || cmd.CalledAs() == precheck)
			if err != nil {
				return err
			}
			if format != short {
				err = format.print(cmd.OutOrStdout(), results)
			} else {
				err = checkTable(cmd.OutOrStdout(), results)
			}
			if err == nil && check.Failed(results) {
				return errFailed
			}
			return err
		},
	}
	in.Bind(cmd.Flags())
	cmd.Flags().BoolVar(&pre, "pre", false, "Before there is a control plane: look at what it needs, and at your rights to install it.")
	format.bind(cmd, short, "json", "yaml")
	return cmd
}

// looked runs the checks of a cluster.
func looked(ctx context.Context, flags *cluster.Flags, pre bool) ([]check.Result, error) {
	in, err := flags.Open()
	if err != nil {
		return nil, err
	}
	var pods []*cluster.Pod
	defer func() {
		for _, pod := range pods {
			pod.Close()
		}
	}()
	return check.Run(ctx, check.Config{API: in.API, Namespace: in.Namespace,
		Revision: in.Revision, Pre: pre, Replica: func(of *corev1.Pod) check.Replica {
			pod := in.Pod(of)
			pods = append(pods, pod)
			return check.Replica{Name: pod.String(), Monitoring: pod.Monitoring, Client: pod.Client(), Dial: pod.Dial}
		}}), nil
}

func checkTable(w io.Writer, results []check.Result) error {
	rows := [][]string{{"CHECK", "STATUS", "FOUND"}}
	for _, r := range results {
		rows = append(rows, []string{show.Printable(r.Check), string(r.Status), show.Printable(r.Found)})
	}
	if err := show.Table(w, rows); err != nil {
		return err
	}
	first := true
	for _, r := range results {
		if r.Do == "" || r.Status == check.OK {
			continue
		}
		if first {
			fmt.Fprintln(w)
			first = false
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", show.Printable(r.Check), r.Do); err != nil {
			return err
		}
	}
	return nil
}
