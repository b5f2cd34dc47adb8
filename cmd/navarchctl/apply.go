package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/object"
)

// fieldManager is the name of the field manager in requests for server-side apply.
const fieldManager = "navarchctl"

func applyCommand() *cobra.Command {
	w := waiter{controlPlane: controlPlane{everyRole: true}}
	var (
		files []string
		saved string
		until bool
		force bool
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE|--plan FILE [--wait]",
		Short: "Apply objects at the API server, and wait until all proxies have acknowledged them",
		Long: `Applies each object by server-side apply, as kubectl apply --server-side does, with the field manager navarchctl.
With --wait the command ends when every affected proxy has acknowledged every object, as navarchctl wait does; --timeout counts
from the end of the applying.

With --plan it applies the objects of a plan that navarchctl plan --out saved, and deletes those that the plan deletes. It plans again
first. If an object of the plan, or an object behind what changes, differs from what the plan was made of, it names the object and applies
nothing. A change that the control plane has not read yet is not noticed.

Objects in a folder (--config-dir of navarchd) are not applied: navarchd reads the folder. Copy the file there, and run
navarchctl wait.`,
		Example: `  navarchctl apply -f routes.yaml --wait
  navarchctl apply --plan plan.json --wait
  kubectl kustomize overlays/prod | navarchctl apply -f - --wait --timeout 2m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer w.close()
			if !w.cluster.Given() {
				return errors.New("apply writes to the API server of a kubeconfig, and no kubeconfig is found (--kubeconfig):" +
					" copy the files to navarchd's folder (--config-dir), then navarchctl wait KIND NAME")
			}
			var c change
			var err error
			if saved != "" {
				c, err = w.planned(cmd.Context(), saved, cmd.ErrOrStderr())
			} else {
				c.put, err = readObjects(files, cmd.InOrStdin())
			}
			if err != nil {
				return err
			}
			return w.run(cmd, c, force, until)
		},
	}
	w.bind(cmd)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "File or folder with the objects, in YAML or JSON; - for the standard input.")
	cmd.Flags().StringVar(&saved, "plan", "", "File of navarchctl plan --out, whose objects are applied if the plan still holds.")
	cmd.Flags().BoolVar(&until, "wait", false, "Wait until all affected proxies have acknowledged all objects.")
	cmd.Flags().BoolVar(&force, "force-conflicts", false, "Take over fields that another manager has set.")
	cmd.MarkFlagsOneRequired("filename", "plan")
	cmd.MarkFlagsMutuallyExclusive("filename", "plan")
	return cmd
}

// run applies and deletes the objects of a change. With until, it waits until the affected proxies have acknowledged
// the applied objects.
func (w *waiter) run(cmd *cobra.Command, c change, force, until bool) error {
	in, err := w.cluster.Open()
	if err != nil {
		return err
	}
	applied, err := w.apply(cmd, in, c.put, force)
	if err != nil {
		return err
	}
	deleted, err := w.remove(cmd, in, c.removed)
	switch {
	case err != nil:
		return err
	case until:
		return w.all(cmd, applied)
	case w.format == nameFormat:
		return printNames(cmd.OutOrStdout(), names(append(applied, deleted...)))
	case len(applied) > 0 && applied[0].kind.configures():
		goesOn(cmd, w.format, "wait until all proxies have it", "wait", names(applied)[0])
	}
	return nil
}

// lines returns the writer for lines about single objects. The writer is standard output, or standard error if a
// program reads the output.
func (w *waiter) lines(cmd *cobra.Command) io.Writer {
	if w.format.forPeople() {
		return cmd.OutOrStdout()
	}
	return cmd.ErrOrStderr()
}

// remove deletes objects in order, and prints a line for each. It stops at the first error. Deletions are not waited
// for, because a deleted object has no generation.
func (w *waiter) remove(cmd *cobra.Command, in *cluster.Cluster, objects []*object.Object) (deleted []awaited, err error) {
	for _, o := range objects {
		on, err := removeOne(cmd.Context(), in, o)
		if err != nil {
			return nil, err
		}
		deleted = append(deleted, on)
		fmt.Fprintf(w.lines(cmd), "%s deleted\n", show.Printable(on.String()))
	}
	return deleted, nil
}

// apply applies objects in order, and prints a line for each. At the first error it stops and returns no objects. The
// objects before the error stay applied.
func (w *waiter) apply(cmd *cobra.Command, in *cluster.Cluster, objects []*object.Object, force bool) (applied []awaited, err error) {
	for _, o := range objects {
		on, err := applyOne(cmd.Context(), in, o, force)
		if err != nil {
			return nil, err
		}
		applied = append(applied, on)
		fmt.Fprintf(w.lines(cmd), "%s applied (generation %d)\n", show.Printable(on.String()), on.generation)
	}
	return applied, nil
}

// names returns the names of objects in the form that navarchctl wait accepts.
func names(all []awaited) (names []string) {
	for _, on := range all {
		names = append(names, objectName(on.object()))
	}
	return names
}

// all waits until the affected proxies have acknowledged all objects, for at most w.timeout. It skips objects of kinds
// that configure no proxy, and prints a note. The error joins the errors of all objects.
func (w *waiter) all(cmd *cobra.Command, objects []awaited) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
	defer cancel()
	var failed []error
	for _, on := range objects {
		if !on.kind.configures() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is not waited for: objects of this kind do not configure proxies\n", show.Printable(on.String()))
			continue
		}
		failed = append(failed, w.wait(ctx, cmd, on))
	}
	return errors.Join(failed...)
}

// applyOne applies an object. Errors begin with the object's location in the files.
func applyOne(ctx context.Context, in *cluster.Cluster, o *object.Object, force bool) (on awaited, err error) {
	path, on, err := locate(ctx, in, o)
	if err != nil {
		return on, err
	}
	path += "?fieldManager=" + fieldManager
	if force {
		path += "&force=true"
	}
	var applied struct{ Metadata struct{ Generation int64 } }
	if err := in.API.Apply(ctx, path, json.RawMessage(o.JSON), &applied); err != nil {
		return on, fmt.Errorf("%s: %s: %w", o.Location, on, err)
	}
	on.generation = applied.Metadata.Generation
	return on, nil
}
