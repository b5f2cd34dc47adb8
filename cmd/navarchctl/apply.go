package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

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
		until bool
		force bool
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE [--wait]",
		Short: "Apply objects at the API server, and wait until all proxies have acknowledged them",
		Long: `Applies each object by server-side apply, as kubectl apply --server-side does, with the field manager navarchctl.
With --wait the command ends when every affected proxy has acknowledged every object, as navarchctl wait does; --timeout counts
from the end of the applying.

Objects in a folder (--config-dir of navarchd) are not applied: navarchd reads the folder. Copy the file there, and run
navarchctl wait.`,
		Example: `  navarchctl apply -f routes.yaml --wait
  kubectl kustomize overlays/prod | navarchctl apply -f - --wait --timeout 2m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer w.close()
			if !w.cluster.Given() {
				return errors.New("apply writes to the API server of a kubeconfig, and no kubeconfig is found (--kubeconfig):" +
					" copy the files to navarchd's folder (--config-dir), then navarchctl wait KIND NAME")
			}
			objects, err := readObjects(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			in, err := w.cluster.Open()
			if err != nil {
				return err
			}
			applied, err := w.apply(cmd, in, objects, force)
			switch {
			case err != nil:
				return err
			case until:
				return w.all(cmd, applied)
			case w.format == nameFormat:
				return printNames(cmd.OutOrStdout(), names(applied))
			case applied[0].kind.configures():
				goesOn(cmd, w.format, "until all proxies have it", "wait", names(applied)[0])
			}
			return nil
		},
	}
	w.bind(cmd)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "File or folder with the objects, in YAML or JSON; - for the standard input.")
	cmd.Flags().BoolVar(&until, "wait", false, "Wait until all affected proxies have acknowledged all objects.")
	cmd.Flags().BoolVar(&force, "force-conflicts", false, "Take over fields that another manager has set.")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // only if the flag is not defined above
	}
	return cmd
}

// apply applies objects in order, and prints a line for each. At the first error it stops and returns no objects. The
// objects before the error stay applied.
func (w *waiter) apply(cmd *cobra.Command, in *cluster.Cluster, objects []*object.Object, force bool) (applied []awaited, err error) {
	progress := cmd.OutOrStdout()
	if !w.format.forPeople() {
		progress = cmd.ErrOrStderr()
	}
	for _, o := range objects {
		on, err := applyOne(cmd.Context(), in, o, force)
		if err != nil {
			return nil, err
		}
		applied = append(applied, on)
		fmt.Fprintf(progress, "%s applied (generation %d)\n", show.Printable(on.String()), on.generation)
	}
	return applied, nil
}

// names returns the names of objects in the form that the command wait accepts.
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
	on = awaited{kind: kindName{o.ID.Group, o.ID.Kind}, name: o.ID.Name}
	if on.namespace, _, err = metadataOf(o); err != nil {
		return on, fmt.Errorf("%s: %w", o.Location, err)
	}
	if on.namespace == "" {
		on.namespace = corev1.NamespaceDefault
	}
	path, namespaced, err := on.kind.path(ctx, in, o.Version, on.namespace, on.name)
	if err != nil {
		return on, fmt.Errorf("%s: %w", o.Location, err)
	}
	if !namespaced {
		on.namespace = ""
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
