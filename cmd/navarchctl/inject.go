package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// injector has the flags of the command inject. The injection settings come from files or from a cluster. By default
// they come from Navarch's chart.
type injector struct {
	file, out                 string
	config, values, mesh      string // paths of files
	cluster                   cluster.Flags
	fromCluster               bool
	systemNamespace, revision string
	native                    bool
	warnings                  io.Writer
}

func injectCommand() *cobra.Command {
	i := &injector{}
	cmd := &cobra.Command{
		Use:     "inject -f FILE",
		Aliases: []string{"kube-inject"},
		Short:   "Put proxies into the Pods of manifests, as the webhook would, without asking it",
		Long: `inject reads manifests: Pods, Deployments, StatefulSets, DaemonSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs,
DeploymentConfigs, Lists of these, in any number of documents. It prints them with their proxies; whatever else is in the file is
printed as it is. The reasons why Pods of a manifest get no proxy go to standard error.

By default it takes the templates and values of Navarch's own chart, of which the proxy's image is navarch/navarch-agent:dev. A
cluster's are taken with --from-cluster, those of files with --inject-config-file and --values-file: the keys config and values of
the ConfigMap istio-sidecar-injector.`,
		Example: `  # What the webhook of this cluster would make of a manifest.
  navarchctl inject --from-cluster -f shop.yaml | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i.warnings = cmd.ErrOrStderr()
			return i.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&i.file, "filename", "f", "", "File of manifests; - is standard input.")
	f.StringVarP(&i.out, "output", "o", "", "File that is written (default standard output).")
	f.StringVar(&i.config, "inject-config-file", "", "File of the templates: the key config of the ConfigMap istio-sidecar-injector.")
	f.StringVar(&i.values, "values-file", "", "File of the values: its key values.")
	f.StringVar(&i.mesh, "mesh-config-file", "", "File of the mesh configuration: the key mesh of the ConfigMap istio.")
	f.BoolVar(&i.fromCluster, "from-cluster", false, "Take the ConfigMaps of a cluster.")
	i.cluster.BindKubeconfig(f)
	f.StringVarP(&i.systemNamespace, "istio-namespace", "i", "istio-system", "Namespace of the control plane.")
	f.StringVarP(&i.revision, "revision", "r", "", "Revision of the control plane.")
	f.BoolVar(&i.native, "native-sidecars", false,
		"The kubelets know sidecar containers (Kubernetes 1.33), so the proxy is one; the Pod's annotation sidecar.istio.io/nativeSidecar"+
			" counts before that.")
	_ = cmd.MarkFlagRequired("filename")
	cmd.MarkFlagsMutuallyExclusive("from-cluster", "inject-config-file")
	cmd.MarkFlagsMutuallyExclusive("from-cluster", "values-file")
	cmd.MarkFlagsMutuallyExclusive("from-cluster", "mesh-config-file")
	return cmd
}

func (i *injector) run(ctx context.Context, in io.Reader, out io.Writer) error {
	settings, err := i.settings(ctx)
	if err != nil {
		return err
	}
	for _, problem := range settings.Config.Problems() {
		fmt.Fprintln(i.warnings, problem)
	}
	if i.file != "-" {
		file, err := os.Open(i.file)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	var text bytes.Buffer // written only after all documents succeed, so that kubectl does not apply some of them
	if err := i.documents(settings, in, &text); err != nil {
		return fmt.Errorf("%s: %w", i.file, err)
	}
	if i.out != "" {
		return os.WriteFile(i.out, text.Bytes(), 0o644)
	}
	_, err = out.Write(text.Bytes())
	return err
}

// documents injects proxies into each YAML document that it reads from manifests, and writes all documents to result.
// The error contains the number of the first document that fails. The first document has the number 1.
func (i *injector) documents(settings *inject.Settings, manifests io.Reader, result *bytes.Buffer) error {
	reader := k8syaml.NewYAMLReader(bufio.NewReader(manifests))
	for n := 1; ; n++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		injected, notes, err := settings.Document(text, i.native)
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		for _, note := range notes {
			fmt.Fprintln(i.warnings, note)
		}
		if n > 1 {
			result.WriteString("---\n")
		}
		result.Write(bytes.TrimSuffix(injected, []byte("\n")))
		result.WriteString("\n")
	}
}

// settings returns the injection settings that the flags select. Errors: a file or ConfigMap cannot be read, or the
// configuration is invalid.
func (i *injector) settings(ctx context.Context) (*inject.Settings, error) {
	source, config, values, mesh := "Navarch's chart", injection.Config(), injection.Values(), ""
	if i.fromCluster {
		in, err := i.cluster.Open()
		if err != nil {
			return nil, err
		}
		data, err := configMap(ctx, in.API, i.systemNamespace, inject.NameOf("istio-sidecar-injector", i.revision))
		if err != nil {
			return nil, err
		}
		source = "ConfigMap " + i.systemNamespace + "/" + inject.NameOf("istio-sidecar-injector", i.revision)
		config, values = data["config"], data["values"]
		if data, err = configMap(ctx, in.API, i.systemNamespace, inject.NameOf("istio", i.revision)); err != nil {
			return nil, err
		}
		mesh = data["mesh"]
	}
	for _, of := range []struct {
		file string
		into *string
	}{{i.config, &config}, {i.values, &values}, {i.mesh, &mesh}} {
		if of.file == "" {
			continue
		}
		text, err := os.ReadFile(of.file)
		if err != nil {
			return nil, err
		}
		*of.into = string(text)
	}
	if i.config != "" {
		source = i.config
	}
	parsed, err := inject.ParseConfig(source, config, values, os.Getenv)
	if err != nil {
		return nil, err
	}
	meshConfig, err := i.meshConfig(mesh)
	if err != nil {
		return nil, err
	}
	return &inject.Settings{Config: parsed, Mesh: meshConfig, Revision: i.revision, Namespace: i.systemNamespace}, nil
}

// meshConfig parses the YAML of a mesh configuration. Fields that the text omits have the defaults. An empty text is
// valid. Problems are printed as warnings. meshConfig fails if the text cannot be read as a mesh configuration.
func (i *injector) meshConfig(text string) (*meshv1alpha1.MeshConfig, error) {
	if text == "" {
		return model.MeshDefaults(), nil
	}
	js, err := json.Marshal(map[string]any{"data": map[string]string{"mesh": text}})
	if err != nil {
		return nil, err
	}
	n := normal.New(normal.Options{SystemNamespace: i.systemNamespace, Revision: i.revision})
	mesh := n.ParseMesh(&object.Object{ID: n.MeshID(), JSON: js})
	reportProblems(i.warnings, mesh.Problems)
	if mesh.Config == nil {
		return nil, errors.New("the mesh configuration cannot be read")
	}
	return mesh.Config, nil
}

// configMap returns the data of a ConfigMap, which may be nil. It fails if the ConfigMap is missing. Errors name the
// ConfigMap.
func configMap(ctx context.Context, api *apiserver.Client, namespace, name string) (map[string]string, error) {
	var found struct{ Data map[string]string }
	err := api.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/configmaps/"+url.PathEscape(name), nil, &found)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", namespace, name, err)
	}
	return found.Data, nil
}
