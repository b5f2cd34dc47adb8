package extension

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensionsv1 "istio.io/api/extensions/v1alpha1"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/pullsecret"
)

// These variables of a module's environment instruct Istio's agent how to fetch the module.
// extension.PullSecretVariable does so too. The agent removes all three before Envoy runs the module (istio:
// pkg/model/wasm.go, pkg/wasm/convert.go).
const (
	pullPolicyVariable = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
	versionVariable    = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
)

// These are settings of all modules.
const (
	runtime = "envoy.wasm.runtime.v8"
	// agentCluster fills the required field for a cluster. Envoy does not use it, because the agent fetches the
	// module. Istio sends the same value.
	agentCluster = "_"
	fetchTimeout = 30 * time.Second // limit of fetching a module, as in Istio
)

// Build encodes the configuration under the extension's name (extension.Name). The resource also contains a stand-in: a
// simple configuration for proxies that refuse this one. The stand-in of a module passes or refuses traffic by
// failStrategy. The stand-in of Lua refuses all requests.
//
// Build fails if pluginConfig or url is invalid. If ByAgent is false, it also fails if the configuration violates a
// constraint of Envoy's API. These errors name the extension and the field. A text that is not valid UTF-8 is an error
// that names the resource.
func (c Config) Build() (*xds.Resource, error) {
	config, err := c.message("")
	if err == nil && !c.ByAgent { // Envoy requires a sha256; the agent does not, and rewrites the configuration
		err = patch.Check(config)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.Extension.Key, err)
	}
	r, err := xds.Encode(xds.Extension, config.Name, config)
	if err != nil {
		return nil, err
	}
	return c.withStandIn(r)
}

// Build encodes the configuration as Config.Build does with ByAgent, and adds the credential for the registry of the
// module's image. The version is a hash of the public part and of the credentials' MAC. So the version does not reveal
// the credentials, is equal on all replicas, and does not change when the same credentials are encrypted again. Errors
// are those of Config.Build, or a model.Problem if Credentials are invalid or have no entry for the registry. The
// model.Problem names the Secret.
func (p Pulled) Build() (*xds.Resource, error) {
	shared := Config{Extension: p.Extension, ByAgent: true}
	public, err := shared.Build()
	if err != nil {
		return nil, err
	}
	registry := extension.Registry(p.Extension.Spec.GetWasm())
	credential := pullsecret.For(*p.Credentials, registry)
	if credential == nil {
		return nil, model.Fault(p.Secret.Key, problem.Required, "data", fmt.Errorf("has no credential for %s", registry))
	}
	config, err := shared.message(string(credential))
	if err != nil {
		return nil, err
	}
	version := xds.VersionOf([]byte("navarch.io/pulled/1"), []byte(public.Version), p.Secret.Spec.GetMac())
	r, err := xds.EncodeAs(xds.Extension, config.Name, version, config)
	if err != nil {
		return nil, err
	}
	return shared.withStandIn(r)
}

// message returns the configuration. The argument credential is the credential for the module's registry. It may be
// empty.
func (c Config) message(credential string) (*corev3.TypedExtensionConfig, error) {
	name := extension.Name(c.Extension.Key)
	filter, err := c.filter(name, credential)
	if err != nil {
		return nil, err
	}
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: xds.Any(filter)}, nil
}

// filter returns the message of the filter: Lua, or Wasm for HTTP or for connections.
func (c Config) filter(name, credential string) (proto.Message, error) {
	if lua := c.Extension.Spec.GetLua(); lua != nil {
		source := &corev3.DataSource_InlineString{InlineString: lua.GetInlineCode()}
		return &luav3.Lua{DefaultSourceCode: &corev3.DataSource{Specifier: source}}, nil
	}
	plugin, err := c.plugin(name, credential, c.Extension.Spec.GetWasm())
	if err != nil {
		return nil, err
	}
	if extension.OnConnections(c.Extension) {
		return &networkwasmv3.Wasm{Config: plugin}, nil
	}
	return &httpwasmv3.Wasm{Config: plugin}, nil
}

// policies maps Istio's failure strategies to Envoy's policies; the default is FAIL_CLOSE.
var policies = map[extensionsv1.FailStrategy]wasmv3.FailurePolicy{
	extensionsv1.FailStrategy_FAIL_CLOSE:  wasmv3.FailurePolicy_FAIL_CLOSED,
	extensionsv1.FailStrategy_FAIL_OPEN:   wasmv3.FailurePolicy_FAIL_OPEN,
	extensionsv1.FailStrategy_FAIL_RELOAD: wasmv3.FailurePolicy_FAIL_RELOAD,
}

// plugin returns the configuration of a Wasm module, as istiod does (pilot/pkg/model/extensions.go,
// buildWasmExtensionConfig). The error names the invalid field, pluginConfig or url.
func (c Config) plugin(name, credential string, wasm *extensionsv1.WasmConfig) (*wasmv3.PluginConfig, error) {
	configuration, err := configurationOf(wasm.GetPluginConfig())
	if err != nil {
		return nil, err
	}
	code, err := c.code(wasm)
	if err != nil {
		return nil, err
	}
	return &wasmv3.PluginConfig{
		Name: name, RootId: wasm.GetPluginName(), Configuration: configuration, FailurePolicy: policies[wasm.GetFailStrategy()],
		Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
			Runtime: runtime, Code: code, EnvironmentVariables: c.environment(wasm, credential)}},
	}, nil
}

// configurationOf returns the configuration that the module reads: pluginConfig as JSON, in an Any. Without fields it
// returns nil. The JSON has sorted keys and no white space. protojson is not used, because it varies its white space on
// purpose.
func configurationOf(config *structpb.Struct) (*anypb.Any, error) {
	if len(config.GetFields()) == 0 {
		return nil, nil
	}
	var text bytes.Buffer
	to := json.NewEncoder(&text)
	to.SetEscapeHTML(false)
	if err := to.Encode(config.AsMap()); err != nil {
		return nil, fmt.Errorf("pluginConfig: %w", err)
	}
	return xds.Any(wrapperspb.String(strings.TrimSpace(text.String()))), nil
}

// code returns the source of the module: a file, or a URL that the agent or Envoy fetches.
func (c Config) code(wasm *extensionsv1.WasmConfig) (*corev3.AsyncDataSource, error) {
	at := extension.URL(wasm)
	if path, is := strings.CutPrefix(at, "file://"); is {
		return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{
			Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}}}, nil
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	cluster := agentCluster
	if !c.ByAgent {
		cluster = clusterOf(u)
	}
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
		HttpUri: &corev3.HttpUri{Uri: u.String(), Timeout: durationpb.New(fetchTimeout),
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster}},
		Sha256: wasm.GetSha256(),
	}}}, nil
}

// clusterOf returns the outbound cluster of the URL's host and port, through which Envoy itself fetches a module. A
// ServiceEntry must exist for the host.
func clusterOf(u *url.URL) string {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 16)
	if err != nil {
		port = 0 // impossible: the store refuses such ports, and other schemes
	}
	return xds.OutboundCluster(uint32(port), "", u.Hostname())
}

// environment returns the environment variables of the module, and the variables that instruct the agent. It returns
// nil if there are no variables.
func (c Config) environment(wasm *extensionsv1.WasmConfig, credential string) *wasmv3.EnvironmentVariables {
	out := &wasmv3.EnvironmentVariables{KeyValues: map[string]string{}}
	for _, e := range wasm.GetVmConfig().GetEnv() {
		if e.GetValueFrom() == extensionsv1.EnvValueSource_HOST {
			out.HostEnvKeys = append(out.HostEnvKeys, e.GetName())
		} else {
			out.KeyValues[e.GetName()] = e.GetValue()
		}
	}
	if c.ByAgent {
		// The agent fetches a module again if this value changes. istiod uses the object's resourceVersion, which also
		// changes when the content does not.
		out.KeyValues[versionVariable] = c.Extension.Hash.String()
		if wasm.GetImagePullPolicy() != extensionsv1.PullPolicy_UNSPECIFIED_POLICY {
			out.KeyValues[pullPolicyVariable] = wasm.GetImagePullPolicy().String()
		}
		if extension.Registry(wasm) != "" {
			out.KeyValues[extension.PullSecretVariable] = credential
		}
	}
	if len(out.HostEnvKeys)+len(out.KeyValues) == 0 {
		return nil
	}
	return out
}
