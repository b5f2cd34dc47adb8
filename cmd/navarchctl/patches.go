package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/inspect"
)

func patchesCommand() *cobra.Command {
	var (
		at     controlPlane
		format output
	)
	cmd := &cobra.Command{
		Use:   "patches",
		Short: "List the patches of EnvoyFilters with the number of resources that each changes",
		Long: `One line for each patch of an EnvoyFilter. CHANGED counts the resources of the connected proxies that the patch changes: clusters, listeners, heads of
route configurations, virtual hosts and configurations of filters. A resource counts once, however many proxies have it. Each replica counts for its own
proxies, and CHANGED is the largest count. It is 0 if the patch matches no resource, or if the resources already have the values of the patch.
Clusters and listeners that a patch removes as a whole are not counted (-). If a replica does not answer, a warning names it.`,
		Example: `  navarchctl patches
  navarchctl patches -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer at.close()
			answer, err := at.patches(cmd.Context())
			if err != nil {
				return err
			}
			all := append([]inspect.Patch{}, answer.Items...)
			r := rows{value: all, table: func(w io.Writer, _ bool) error { return patchesTable(w, all) },
				next: nextIs("why a patch has no effect", "problems")}
			for _, p := range all {
				r.names = append(r.names, objectName(p.Object))
			}
			if err = format.write(cmd, r); err == nil {
				err = at.warnOfMissing(cmd.ErrOrStderr(), "counts", answer.Partial)
			}
			return err
		},
	}
	at.bind(cmd.Flags())
	format.bindRows(cmd)
	return cmd
}

// patches reads the patches of EnvoyFilters of all replicas, each once, with its largest count. Results and errors are
// those of askFleets.
func (c *controlPlane) patches(ctx context.Context) (fleetapi.Answer[inspect.Patch], error) {
	return askFleets(ctx, c, "patches", url.Values{}, func(parts []fleetapi.From[[]inspect.Patch]) fleetapi.Answer[inspect.Patch] {
		return fleetapi.MergePatches(fleetapi.Everything, parts)
	})
}

func patchesTable(w io.Writer, all []inspect.Patch) error {
	rows := [][]string{{"OBJECT", "PATCH", "APPLY TO", "OPERATION", "CHANGED"}}
	for _, p := range all {
		changed := "-"
		if p.Changed != nil {
			changed = strconv.Itoa(*p.Changed)
		}
		rows = append(rows, []string{p.Object, fmt.Sprintf("configPatches[%d]", p.Index), p.ApplyTo, p.Operation, changed})
	}
	return show.Table(w, rows)
}
