package normal

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	extensionsv1 "istio.io/api/extensions/v1alpha1"
	typev1 "istio.io/api/type/v1beta1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/pullsecret"
)

// wasmPluginRecords validates a WasmPlugin, and returns its record: the equivalent TrafficExtension
// (https://istio.io/latest/docs/reference/config/proxy_extensions/wasm-plugin/).
func wasmPluginRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	p := &extensionsv1.WasmPlugin{}
	if !r.spec(obj, p) {
		return nil
	}
	e := &extensionsv1.TrafficExtension{Selector: p.Selector, TargetRefs: allTargets(p.TargetRef, p.TargetRefs),
		Phase: extensionsv1.TrafficExtension_ExecutionPhase(p.Phase), Priority: p.Priority}
	for _, m := range p.Match {
		e.Match = append(e.Match, &extensionsv1.TrafficSelector{Mode: m.GetMode(), Ports: m.GetPorts()})
	}
	wasm := &extensionsv1.WasmConfig{
		Url: p.Url, Sha256: p.Sha256, ImagePullPolicy: p.ImagePullPolicy, ImagePullSecret: p.ImagePullSecret, PluginConfig: p.PluginConfig,
		PluginName: p.PluginName, FailStrategy: p.FailStrategy, VmConfig: p.VmConfig, Type: p.Type,
	}
	e.FilterConfig = &extensionsv1.TrafficExtension_Wasm{Wasm: wasm}
	r.extension(e, p.TargetRef != nil && len(p.TargetRefs) > 0)
	r.eachTarget(p.TargetRef, p.TargetRefs)
	r.wasm("spec", wasm)
	return r.record(model.KindWasmPlugin, obj, obj.ID.Name, e)
}

// trafficExtensionRecords validates a TrafficExtension, and returns its record (istio.io/api
// extensions/v1alpha1/traffic_extension.proto).
func trafficExtensionRecords(_ *Normalizer, r *report, obj *object.Object, _ Lookup) []model.Record {
	e := &extensionsv1.TrafficExtension{}
	if !r.spec(obj, e) {
		return nil
	}
	r.extension(e, false)
	r.eachTarget(nil, e.TargetRefs)
	switch lua := e.GetLua(); {
	case e.GetWasm() != nil:
		r.wasm("spec.wasm", e.GetWasm())
	case lua == nil:
		r.requiredf("spec", "one of wasm and lua must be set")
	case lua.InlineCode == "":
		r.requiredf("spec.lua.inlineCode", "must not be empty")
	case len(lua.InlineCode) > maxLua:
		r.errorf("spec.lua.inlineCode", "is %d bytes long; %d at most", len(lua.InlineCode), maxLua)
	}
	return r.record(model.KindTrafficExtension, obj, obj.ID.Name, e)
}

// Maximum sizes in Istio's CustomResourceDefinitions (kubernetes/customresourcedefinitions.gen.yaml). The code of Lua
// is measured in bytes, and all other texts in characters.
const (
	maxLua         = 64 << 10 // bytes of lua.inlineCode
	maxTargetRefs  = 16
	maxEnvironment = 256  // variables in vmConfig.env
	maxVariable    = 256  // characters of a variable's name
	maxValue       = 2048 // characters of a variable's value
	maxPluginName  = 256  // characters of pluginName
	maxSecretName  = 253  // characters of imagePullSecret
)

// extension validates the fields that WasmPlugins and TrafficExtensions have in common. bothRefs reports whether a
// WasmPlugin has both targetRef and targetRefs.
func (r *report) extension(e *extensionsv1.TrafficExtension, bothRefs bool) {
	r.selector("spec.selector.matchLabels", e.Selector.GetMatchLabels())
	switch {
	case bothRefs:
		r.errorf("spec.targetRefs", "must not be set together with spec.targetRef")
	case e.Selector != nil && len(e.TargetRefs) > 0:
		r.errorf("spec.targetRefs", "must not be set together with spec.selector")
	case len(e.TargetRefs) > maxTargetRefs:
		r.errorf("spec.targetRefs", "%d of them; %d at most", len(e.TargetRefs), maxTargetRefs)
	}
	for i, m := range e.Match {
		at := fmt.Sprintf("spec.match[%d]", i)
		if _, known := typev1.WorkloadMode_name[int32(m.GetMode())]; !known {
			r.errorf(at+".mode", "%v is not known", m.GetMode())
		}
		for j, p := range m.GetPorts() {
			if n := p.GetNumber(); n == 0 || n > 65535 {
				r.errorf(fmt.Sprintf("%s.ports[%d].number", at, j), "%d: want 1 to 65535", n)
			}
		}
	}
}

// isPort reports whether a text is the number of a port.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// wasm validates the settings of a Wasm module, as istiod (pkg/config/validation, ValidateWasmPlugin) and the CRD do.
func (r *report) wasm(at string, w *extensionsv1.WasmConfig) {
	where := w.Url
	if !strings.Contains(where, "://") {
		where = "oci://" + where
	}
	switch u, err := url.Parse(where); {
	case w.Url == "":
		r.requiredf(at+".url", "must not be empty")
	case err != nil:
		r.errorf(at+".url", "is no URL: %v", err)
	case !slices.Contains([]string{"oci", "http", "https", "file"}, u.Scheme):
		r.errorf(at+".url", "scheme %q is not supported: want oci, http, https or file", u.Scheme)
	case u.Scheme == "file" && u.Path == "":
		r.errorf(at+".url", "names no file: want file:// and an absolute path")
	case u.Scheme != "file" && u.Host == "":
		r.errorf(at+".url", "names no host")
	case u.Scheme != "file" && !isPort(cmp.Or(u.Port(), "443")): // url.Parse accepts any number
		r.errorf(at+".url", "port %s: want 1 to 65535", u.Port())
	}
	if w.Sha256 != "" {
		if _, err := hex.DecodeString(w.Sha256); err != nil || len(w.Sha256) != 64 || strings.ToLower(w.Sha256) != w.Sha256 {
			r.errorf(at+".sha256", "want 64 digits out of 0-9 and a-f")
		}
	}
	if n := utf8.RuneCountInString(w.ImagePullSecret); n > maxSecretName {
		r.errorf(at+".imagePullSecret", "is %d characters long; %d at most", n, maxSecretName)
	}
	if w.ImagePullSecret != "" && w.Url != "" && pullsecret.Registry(where) == "" {
		r.warnf(problem.NoEffect, at+".imagePullSecret", "modules are fetched with credentials from image registries alone (oci://), not from %q", w.Url)
	}
	if n := utf8.RuneCountInString(w.PluginName); n > maxPluginName {
		r.errorf(at+".pluginName", "is %d characters long; %d at most", n, maxPluginName)
	}
	r.environment(at+".vmConfig.env", w.GetVmConfig().GetEnv())
}

// environment validates the environment variables of a Wasm module.
func (r *report) environment(at string, all []*extensionsv1.EnvVar) {
	if len(all) > maxEnvironment {
		r.errorf(at, "%d variables; %d at most", len(all), maxEnvironment)
		return
	}
	seen := map[string]bool{}
	for i, e := range all {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case e.GetName() == "" || utf8.RuneCountInString(e.Name) > maxVariable:
			r.errorf(at+".name", "want 1 to %d characters", maxVariable)
		case seen[e.Name]:
			r.duplicatef(at+".name", "%q is used twice", e.Name)
		}
		if seen[e.GetName()] = true; e.GetValueFrom() == extensionsv1.EnvValueSource_HOST && e.GetValue() != "" {
			r.errorf(at+".value", "cannot be combined with valueFrom HOST, which uses the value of the proxy's environment")
		}
		if n := utf8.RuneCountInString(e.GetValue()); n > maxValue {
			r.errorf(at+".value", "is %d characters long; %d at most", n, maxValue)
		}
		if strings.HasPrefix(e.GetName(), "ISTIO_META_WASM_") {
			r.warnf(problem.NoEffect, at+".name", "%q is a name by which agents are told how to fetch the module: the module does not see it",
				e.GetName())
		}
	}
}
