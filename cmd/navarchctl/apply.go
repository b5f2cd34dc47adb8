package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/source/files"
)

// fieldManager owns the fields that apply sets, at the API server.
const fieldManager = "navarchctl"

// mostApplied bounds the size of what is applied, in bytes.
const mostApplied = 16 << 20

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
			objects, err := readApplicable(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			in, err := w.cluster.Open()
			if err != nil {
				return err
			}
			applied, err := w.apply(cmd, in, objects, force)
			if err != nil || !until {
				return err
			}
			return w.all(cmd, applied)
		},
	}
	w.bind(cmd)
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "File or folder with the objects, in YAML or JSON; - for the standard input.")
	cmd.Flags().BoolVar(&until, "wait", false, "Wait until all affected proxies have acknowledged all objects.")
	cmd.Flags().BoolVar(&force, "force-conflicts", false, "Take over fields that another manager has set.")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // the flag was not bound
	}
	return cmd
}

// apply applies objects in order, up to the first error, and prints each.
func (w *waiter) apply(cmd *cobra.Command, in *cluster.Cluster, objects []applicable, force bool) (applied []awaited, err error) {
	progress := cmd.OutOrStdout()
	if w.format != short {
		progress = cmd.ErrOrStderr()
	}
	for _, o := range objects {
		on, err := o.apply(cmd.Context(), in, force)
		if err != nil {
			return nil, err
		}
		applied = append(applied, on)
		fmt.Fprintf(progress, "%s applied (generation %d)\n", show.Printable(on.String()), on.generation)
	}
	return applied, nil
}

// all waits for all objects within the timeout. The error joins theirs.
func (w *waiter) all(cmd *cobra.Command, objects []awaited) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
	defer cancel()
	var failed []error
	for _, on := range objects {
		if !on.kind.configures() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is not waited for: no proxy's configuration is made of its kind\n", show.Printable(on.String()))
			continue
		}
		failed = append(failed, w.wait(ctx, cmd.OutOrStdout(), on))
	}
	return errors.Join(failed...)
}

// applicable is an object to apply.
type applicable struct {
	where string // for messages
	tree  map[string]any
}

// readApplicable reads the objects of files, folders and the standard input. Errors name the file and the document.
func readApplicable(stdin io.Reader, stated []string) (all []applicable, err error) {
	for _, file := range stated {
		paths := []string{file}
		if info, err := os.Stat(file); file != files.Stdin && err == nil && info.IsDir() {
			if paths, err = inFolder(file); err != nil {
				return nil, err
			}
		}
		for _, path := range paths {
			text, err := contentOf(path, io.LimitReader(stdin, mostApplied+1))
			if err == nil && len(text) > mostApplied {
				err = fmt.Errorf("%s: more than %d bytes", path, mostApplied)
			}
			if err != nil {
				return nil, fmt.Errorf("--filename: %w", err)
			}
			some, err := splitObjects(path, text)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("--filename: no object in " + strings.Join(stated, ", "))
	}
	return all, nil
}

// inFolder lists the files of a folder with objects, sorted.
func inFolder(folder string) (paths []string, err error) {
	for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
		paths = append(paths, found...)
	}
	slices.Sort(paths)
	return paths, nil
}

// splitObjects parses the documents of one file. A List counts as its items.
func splitObjects(path string, text []byte) (all []applicable, err error) {
	reader := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		where := fmt.Sprintf("%s, document %d", path, n)
		tree := map[string]any{}
		if err == nil {
			err = yaml.Unmarshal(document, &tree)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		items, list := tree["items"].([]any)
		if kind, _ := tree["kind"].(string); !list || !strings.HasSuffix(kind, "List") {
			if len(tree) > 0 {
				all = append(all, applicable{where, tree})
			}
			continue
		}
		for i, item := range items {
			one, is := item.(map[string]any)
			if !is {
				return nil, fmt.Errorf("%s: items[%d] is not an object", where, i)
			}
			all = append(all, applicable{fmt.Sprintf("%s, items[%d]", where, i), one})
		}
	}
}

// apply applies an object. Errors name the document, the object and the field.
func (o applicable) apply(ctx context.Context, in *cluster.Cluster, force bool) (on awaited, err error) {
	version, _ := o.tree["apiVersion"].(string)
	kind, _ := o.tree["kind"].(string)
	metadata, _ := o.tree["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	for field, value := range map[string]string{"apiVersion": version, "kind": kind, "metadata.name": name} {
		if value == "" {
			return on, fmt.Errorf("%s: %s is missing", o.where, field)
		}
	}
	group, of, grouped := strings.Cut(version, "/")
	if !grouped {
		group, of = "", version
	}
	on = awaited{kind: kindName{group, kind}, name: name}
	if on.namespace, _ = metadata["namespace"].(string); on.namespace == "" {
		on.namespace = corev1.NamespaceDefault
	}
	path, namespaced, err := on.kind.path(ctx, in, of, on.namespace, name)
	if err != nil {
		return on, fmt.Errorf("%s: %w", o.where, err)
	}
	if !namespaced {
		on.namespace = ""
	}
	path += "?fieldManager=" + fieldManager
	if force {
		path += "&force=true"
	}
	var applied struct{ Metadata struct{ Generation int64 } }
	if err := in.API.Apply(ctx, path, o.tree, &applied); err != nil {
		return on, fmt.Errorf("%s: %s: %w", o.where, on, err)
	}
	on.generation = applied.Metadata.Generation
	return on, nil
}
