package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/remains"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// uninstall contains the flags and the state of the command uninstall.
type uninstall struct {
	in     cluster.Flags
	purge  bool
	yes    bool
	crds   bool
	named  []string // CustomResourceDefinitions to delete with their objects (--crd)
	found  remains.Cluster
	gone   []remains.Object // objects that helm uninstall keeps and --purge deletes
	notice io.Writer
}

func uninstallCommand() *cobra.Command {
	u := &uninstall{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove a control plane's webhooks before its chart, and, with --purge, what uninstalling the chart keeps",
		Long: `Webhooks go first: while they are there and nobody answers, Pods cannot be created. Those of another control plane
in the same namespace stay: only what Navarch's chart made goes, and its revision tags, or, with --revision, all of a revision. So

  navarchctl uninstall           # the webhooks
  helm uninstall RELEASE         # the rest of the chart

Uninstalling keeps definitions of Istio's kinds, the Secrets of the CA and the key encryption key, etcd's certificates, volumes and snapshots, and
ConfigMaps that the leader wrote: with these the same mesh comes back, under the same root. --purge deletes them for good, once nothing of the control
plane runs any more. It lists everything, and asks for the namespace's name. Definitions stay, unless --crds is given for those without objects, or
one is named (--crd), which deletes all objects of its kind. An etcd of your own keeps what it has (the keys below /navarch/).`,
		Example: `  navarchctl uninstall
  navarchctl uninstall --purge --crds`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := u.in.Open()
			if err != nil {
				return err
			}
			u.found, u.notice = remains.Cluster{API: in.API, Namespace: in.Namespace, Revision: in.Revision}, cmd.OutOrStdout()
			fmt.Fprintf(u.notice, "%s, namespace %s\n", in, in.Namespace)
			return u.run(cmd)
		},
	}
	f := cmd.Flags()
	u.in.Bind(f)
	f.BoolVar(&u.purge, "purge", false, "Delete also what uninstalling the chart keeps.")
	f.BoolVarP(&u.yes, "yes", "y", false, "Do not ask.")
	f.BoolVar(&u.crds, "crds", false, "With --purge: also definitions of Istio's kinds that have no objects.")
	f.StringSliceVar(&u.named, "crd", nil, "With --purge: also these definitions, with all objects of their kinds.")
	cmd.MarkFlagsMutuallyExclusive("purge", "revision")
	return cmd
}

func (u *uninstall) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if !u.purge && (u.crds || len(u.named) > 0) {
		return errors.New("--crds and --crd are for --purge")
	}
	hooks, others, err := u.found.Webhooks(ctx)
	if err != nil {
		return err
	}
	if err := u.list("Webhooks, which go first:", hooks); err != nil {
		return err
	}
	if err := u.list("Webhooks of the namespace that stay, since no chart of Navarch made them (--revision takes those of one revision):",
		others); err != nil {
		return err
	}
	if err := u.keeps(ctx); err != nil {
		return err
	}
	if len(hooks) == 0 && len(u.gone) == 0 {
		fmt.Fprintln(u.notice, "\nThere is nothing to delete.")
		return nil
	}
	if err := confirmed(cmd, u.yes, u.found.Namespace); err != nil {
		return err
	}
	said := func(o remains.Object) { fmt.Fprintf(u.notice, "deleted %s\n", show.Printable(o.String())) }
	if err := u.found.Delete(ctx, hooks, said); err != nil {
		return err
	}
	return u.found.Delete(ctx, u.gone, said)
}

// keeps lists the objects that uninstalling the chart keeps. With --purge it stores the objects to delete in u.gone,
// and fails if the control plane still runs. It also fails if a definition of --crd does not exist, or if the API
// server cannot be queried.
func (u *uninstall) keeps(ctx context.Context) error {
	kept, err := u.found.Kept(ctx)
	if err != nil {
		return err
	}
	definitions, err := u.found.Definitions(ctx)
	if err != nil {
		return err
	}
	for _, name := range u.named {
		if !slices.ContainsFunc(definitions, func(o remains.Object) bool { return o.Name == name }) {
			return fmt.Errorf("--crd %s: there is no such definition of Istio's kinds", name)
		}
	}
	if !u.purge {
		return u.list("Kept when the chart is uninstalled (--purge deletes these objects, except definitions):", slices.Concat(kept, definitions))
	}
	running, err := u.found.Running(ctx)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return fmt.Errorf("--purge: the control plane runs still: %s; remove the webhooks (navarchctl uninstall), then the chart (helm"+
			" uninstall)", strings.Join(running, ", "))
	}
	var stays []remains.Object
	u.gone = kept
	for _, o := range definitions {
		if slices.Contains(u.named, o.Name) || u.crds && o.Empty() {
			u.gone = append(u.gone, o)
		} else {
			stays = append(stays, o)
		}
	}
	if err := u.list("Deleted for good:", u.gone); err != nil {
		return err
	}
	return u.list("Kept:", stays)
}

// list prints objects under a heading. It prints nothing for an empty list.
func (u *uninstall) list(heading string, all []remains.Object) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintf(u.notice, "\n%s\n", heading)
	var rows [][]string
	for _, o := range all {
		rows = append(rows, []string{"  " + o.String(), o.Holds})
	}
	return show.Table(u.notice, rows)
}
