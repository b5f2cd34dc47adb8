package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

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
Clusters and listeners that a patch removes as a whole are not counted (-).`,
		Example: `  navarchctl patches
  navarchctl patches -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer at.close()
			answers, err := gather[[]inspect.Patch](cmd.Context(), &at, "/debug/patches", cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var lists [][]inspect.Patch
			for _, a := range answers {
				lists = append(lists, a.value)
			}
			all := joinedPatches(lists)
			r := rows{value: all, table: func(w io.Writer, _ bool) error { return patchesTable(w, all) },
				next: nextIs("why a patch has no effect", "problems")}
			for _, p := range all {
				r.names = append(r.names, objectName(p.Object))
			}
			return format.write(cmd, r)
		},
	}
	at.bind(cmd.Flags())
	format.bindRows(cmd)
	return cmd
}

// joinedPatches merges the replicas' lists of patches. Each patch of an object is listed once, in the order of first
// occurrence, with its largest count. The count is nil if every replica has nil.
func joinedPatches(lists [][]inspect.Patch) []inspect.Patch {
	type id struct {
		object string
		index  int
	}
	all, at := []inspect.Patch{}, map[id]int{}
	for _, list := range lists {
		for _, p := range list {
			i, known := at[id{p.Object, p.Index}]
			switch {
			case !known:
				at[id{p.Object, p.Index}] = len(all)
				all = append(all, p)
			case p.Changed != nil && (all[i].Changed == nil || *p.Changed > *all[i].Changed):
				all[i].Changed = p.Changed
			}
		}
	}
	return all
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
