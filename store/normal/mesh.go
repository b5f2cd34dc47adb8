package normal

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/proxyconfig"
)

// MeshID returns the ID of the ConfigMap with the mesh configuration. The ConfigMap is in the system namespace. Its
// name is istio for revision "" or "default", and istio-REVISION for other revisions. The field Origin of the ID is
// zero.
func (n *Normalizer) MeshID() object.ID {
	name := "istio"
	if n.Revision != "" && n.Revision != "default" {
		name += "-" + n.Revision
	}
	return object.ID{Kind: "ConfigMap", Namespace: n.SystemNamespace, Name: name}
}

// IsMesh reports whether an object is the ConfigMap with the mesh configuration, in the config cluster.
func (n *Normalizer) IsMesh(id object.ID) bool { return n.named(id) && id.Origin.Cluster() == "" }

// Keys of the ConfigMap with the mesh configuration.
const (
	meshKey     = "mesh"
	networksKey = "meshNetworks"
)

// configMapRecords returns the record of a ConfigMap with CA certificates in the config cluster. It warns of a mesh
// configuration in the wrong namespace. It returns nil for the mesh configuration in effect, which ParseMesh parses.
func configMapRecords(n *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	want := n.MeshID()
	if n.named(obj.ID) {
		return nil
	}
	if obj.ID.Name == want.Name && bytes.Contains(obj.JSON, []byte(`"mesh":`)) {
		r.warnf(problem.NoEffect, "metadata.namespace", "not acted on: the mesh configuration is read from namespace %s", want.Namespace)
	}
	if obj.ID.Origin.Cluster() != "" { // as in Istio, CA certificates are read from the config cluster only
		return nil
	}
	return authorityRecords(r, obj)
}

// Mesh is a parsed mesh configuration. Config is nil if the key mesh is invalid, and Networks is nil if the key
// meshNetworks is invalid. Both are nil if the ConfigMap cannot be decoded. A caller keeps the previous version of a
// nil part. Networks is empty, not nil, if the key meshNetworks is missing.
type Mesh struct {
	Config   *meshv1.MeshConfig
	Networks *meshv1.MeshNetworks
	Problems []object.Problem
	// Unsaid is true if the decoded ConfigMap has no key mesh. In this case Config has the defaults, and a caller with
	// a previous Config keeps the previous one.
	Unsaid bool
}

// ParseMesh parses the keys mesh and meshNetworks of the ConfigMap, and applies the defaults. Invalid content is
// reported as Problems, and not as an error. The result belongs to the caller.
func (n *Normalizer) ParseMesh(obj *object.Object) Mesh {
	r := &report{id: obj.ID, location: obj.Location}
	var whole struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(obj.JSON, &whole); err != nil {
		r.errorf("data", "%v", err)
		return Mesh{Problems: r.problems}
	}
	user := &meshv1.MeshConfig{}
	text, said := whole.Data[meshKey]
	out := Mesh{Unsaid: !said}
	if stated, ok := r.yaml("data.mesh", text, user); ok {
		out.Config = overlay(user, stated)
		checkMesh(r, out.Config, n.Signers)
		if r.spoiled {
			out.Config = nil
		}
	}
	r.spoiled = false
	networks := &meshv1.MeshNetworks{}
	if _, ok := r.yaml("data.meshNetworks", whole.Data[networksKey], networks); ok {
		if n.networkProblems(r, networks); !r.spoiled {
			out.Networks = networks
		}
	}
	out.Problems = r.problems
	return out
}

// MeshRecord returns the record of a mesh configuration. The record refers to config, so config must not be changed
// afterwards. Errors are those of model.New.
func MeshRecord(config *meshv1.MeshConfig) (model.Record, error) {
	return model.New(model.MeshKey, 0, config)
}

// yaml decodes a YAML text into a message. It returns the top-level fields that the text sets to a value other than
// null. It reports an invalid text, and returns false for it.
func (r *report) yaml(path, text string, into proto.Message) ([]protoreflect.FieldDescriptor, bool) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		r.errorf(path, "%v", err)
		return nil, false
	}
	if string(raw) == "null" {
		return nil, true
	}
	if !r.message(raw, path, into) {
		return nil, false
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(raw, &top); err != nil {
		r.errorf(path, "%v", err)
		return nil, false
	}
	var stated []protoreflect.FieldDescriptor
	fields := into.ProtoReflect().Descriptor().Fields()
	for _, name := range sortedKeys(top) {
		fd := fields.ByJSONName(name)
		if fd == nil {
			fd = fields.ByName(protoreflect.Name(name))
		}
		if fd != nil && string(top[name]) != "null" {
			stated = append(stated, fd)
		}
	}
	return stated, true
}

// overlay returns the default mesh configuration, in which the values of user replace the top-level fields in stated. A
// value replaces the whole field, even if the value is false or 0. An empty root namespace, trust domain, connect
// timeout or listen port is replaced by its default.
func overlay(user *meshv1.MeshConfig, stated []protoreflect.FieldDescriptor) *meshv1.MeshConfig {
	config := model.MeshDefaults()
	to, from := config.ProtoReflect(), user.ProtoReflect()
	for _, fd := range stated {
		if from.Has(fd) {
			to.Set(fd, from.Get(fd))
		} else {
			to.Clear(fd)
		}
	}
	defaults := model.MeshDefaults()
	if config.RootNamespace == "" {
		config.RootNamespace = defaults.RootNamespace
	}
	if config.TrustDomain == "" {
		config.TrustDomain = defaults.TrustDomain
	}
	if config.ConnectTimeout == nil {
		config.ConnectTimeout = defaults.ConnectTimeout
	}
	if config.ProxyListenPort == 0 {
		config.ProxyListenPort = defaults.ProxyListenPort
	}
	if config.ProxyInboundListenPort == 0 {
		config.ProxyInboundListenPort = defaults.ProxyInboundListenPort
	}
	return config
}

// checkMesh validates a mesh configuration, and removes invalid parts that can be omitted.
func checkMesh(r *report, config *meshv1.MeshConfig, signers bool) {
	r.duration1ms("data.mesh.connectTimeout", config.ConnectTimeout, false)
	r.port("data.mesh.proxyListenPort", uint32(config.ProxyListenPort))
	r.port("data.mesh.proxyInboundListenPort", uint32(config.ProxyInboundListenPort))
	if at := "data.mesh.proxyHttpPort"; config.ProxyHttpPort != 0 {
		r.port(at, uint32(config.ProxyHttpPort))
		if config.ProxyHttpPort == config.ProxyListenPort || config.ProxyHttpPort == config.ProxyInboundListenPort {
			r.duplicatef(at, "port %d is the proxy's own port for redirected connections", config.ProxyHttpPort)
		}
	}
	checkRetries(r, "data.mesh.defaultHttpRetryPolicy", config.DefaultHttpRetryPolicy)
	checkZones(r, "data.mesh.zoneAwareLbSetting", config.ZoneAwareLbSetting)
	checkLocality(r, "data.mesh.localityLbSetting", config.LocalityLbSetting)
	for i, ca := range config.GetCaCertificates() {
		checkCACertificate(r, fmt.Sprintf("data.mesh.caCertificates[%d]", i), ca, signers)
	}
	checkMeshTLS(r, config)
	checkUnknown(r, config.GetOutboundTrafficPolicy())
	checkServiceSettings(r, config)
	checkVisibility(r, config.GetServiceEntryVisibility())
	checkExtensionProviders(r, config)
	checkLogFormats(r, config)
	checkDefaultProviders(r, config)
	checkProxyConfig(r, "data.mesh.defaultConfig", config.GetDefaultConfig())
	checkPool(r, "data.mesh.defaultTrafficPolicy.connectionPool", config.GetDefaultTrafficPolicy().GetConnectionPool())
	checkOutlier(r, "data.mesh.defaultTrafficPolicy.outlierDetection", config.GetDefaultTrafficPolicy().GetOutlierDetection())
	for _, of := range []struct {
		path string
		list []string
	}{
		{"data.mesh.defaultServiceExportTo", config.DefaultServiceExportTo},
		{"data.mesh.defaultVirtualServiceExportTo", config.DefaultVirtualServiceExportTo},
		{"data.mesh.defaultDestinationRuleExportTo", config.DefaultDestinationRuleExportTo},
	} {
		if len(of.list) > 0 {
			r.exportTo(of.path, of.list, nil, "default")
		}
	}
}

// checkUnknown validates the TLS settings for connections to unknown destinations.
func checkUnknown(r *report, policy *meshv1.MeshConfig_OutboundTrafficPolicy) {
	at, tls := "data.mesh.outboundTrafficPolicy.tls", policy.GetTls()
	if tls == nil {
		return
	}
	if policy.GetMode() != meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY_DYNAMIC_DNS {
		r.warnf(problem.NoEffect, at, "it is for mode ALLOW_ANY_DYNAMIC_DNS, not %v", policy.GetMode())
	}
	checkTLS(r, at, tls)
}

// checkProxyConfig warns of invalid fields of a ProxyConfig. Proxies do not receive these fields.
func checkProxyConfig(r *report, path string, config *meshv1.ProxyConfig) {
	_, faults := proxyconfig.Of(config)
	for _, fault := range faults {
		r.warnf(problem.Invalid, path+"."+fault.Field, "%s", fault.Message)
	}
}

// checkCACertificate warns of a CA certificate whose PEM is invalid. It also warns of certSigners unless Kubernetes
// signers sign workload certificates (parameter signers).
func checkCACertificate(r *report, path string, ca *meshv1.MeshConfig_CertificateData, signers bool) {
	alone := &meshv1.MeshConfig{CaCertificates: []*meshv1.MeshConfig_CertificateData{ca}}
	if ca.GetSpiffeBundleUrl() == "" && len(CACertificates(alone)) == 0 {
		r.warnf(problem.Invalid, path+".pem", "is not PEM with certificates only: the entry is left out")
	}
	if len(ca.GetCertSigners()) > 0 && !signers {
		r.warnf(problem.NoEffect, path+".certSigners", "no signers of Kubernetes sign for workloads here (EXTERNAL_CA): agents are told of "+
			"the certificate all the same")
	}
}

// CACertificates returns the PEM texts of caCertificates, the further CAs in a mesh configuration. A text that is not
// PEM with certificates only is omitted. The texts have the order of the configuration, and may be repeated. The result
// is nil if no text remains, or for a nil config.
func CACertificates(config *meshv1.MeshConfig) (texts []string) {
	for _, ca := range config.GetCaCertificates() {
		if text := ca.GetPem(); certificatesAlone([]byte(text)) {
			texts = append(texts, text)
		}
	}
	return texts
}

// SignerCertificates returns the texts that CACertificates returns, but only from entries whose certSigners contain
// signer. The parameter signer is the name of a Kubernetes signer. The result is nil if there is no such entry.
func SignerCertificates(config *meshv1.MeshConfig, signer string) (texts []string) {
	for _, ca := range config.GetCaCertificates() {
		if slices.Contains(ca.GetCertSigners(), signer) && certificatesAlone([]byte(ca.GetPem())) {
			texts = append(texts, ca.GetPem())
		}
	}
	return texts
}

// certificatesAlone reports whether a text has PEM blocks, all of them are certificates, and no text follows the last
// block.
func certificatesAlone(text []byte) bool {
	for n := 0; ; n++ {
		block, rest := pem.Decode(text)
		if block == nil {
			return n > 0 && len(bytes.TrimSpace(rest)) == 0
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			return false
		}
		text = rest
	}
}

// checkServiceSettings warns of invalid hosts in serviceSettings.
func checkServiceSettings(r *report, config *meshv1.MeshConfig) {
	for i, s := range config.GetServiceSettings() {
		at := fmt.Sprintf("data.mesh.serviceSettings[%d].hosts", i)
		if len(s.GetHosts()) == 0 {
			r.warnf(problem.NoEffect, at, "is empty: the settings apply to no service")
		}
		for j, host := range s.GetHosts() {
			if wrong := wildcardHost(host); wrong != "" {
				r.warnf(problem.NoEffect, fmt.Sprintf("%s[%d]", at, j), "%q %s: no service has this host", host, wrong)
			}
		}
	}
}
