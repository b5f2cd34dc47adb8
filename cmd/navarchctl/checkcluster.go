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

// precheck is the alias of check by which it is check --pre, as istioctl has it.
const precheck = "precheck"

// errFailed ends check where something failed.
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
		Short:   "Look at what a control plane needs of its cluster, and whether a workload would be served",
		Long: `check looks at the API server, the definitions of Istio's kinds, the rights of the control plane's service accounts, its replicas and
their clocks, etcd as they see it, and the webhooks: whether the API server would reach and believe each replica. Then it does at each replica what
a workload does: it has a certificate signed, for a token of the namespace's service account default, and asks for clusters by ADS.

Before there is a control plane, --pre looks at the API server, the definitions, webhooks that are in the way, and your own rights to install the
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

// looked is what a cluster is found to be.
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
	replica := func(pod *cluster.Pod) check.Replica {
		pods = append(pods, pod)
		return check.Replica{Name: pod.String(), Monitoring: pod.Monitoring, Client: pod.Client(), Dial: pod.Dial}
	}
	return check.Run(ctx, check.Config{API: in.API, Namespace: in.Namespace, Revision: in.Revision, Pre: pre,
		Replica: func(pod *corev1.Pod) check.Replica { return replica(in.Pod(pod)) },
		Replicas: func(ctx context.Context) (all []check.Replica, err error) {
			found, err := in.Replicas(ctx)
			for _, pod := range found {
				all = append(all, replica(pod))
			}
			return all, err
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
