package inject

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"istio.io/api/annotation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Config is the parsed content of a ConfigMap istio-sidecar-injector[-REVISION] (keys config and values). ParseConfig
// creates it. The fields must not be modified. A Config is safe for concurrent use.
type Config struct {
	Source string `json:"-"` // for messages: "ConfigMap istio-system/istio-sidecar-injector"

	// Policy is "enabled" or "disabled". It applies to a Pod if neither the Pod's own label or annotation nor a
	// selector decides.
	Policy               string                 `json:"policy"`
	DefaultTemplates     []string               `json:"defaultTemplates"` // of Pods that name no templates
	Templates            map[string]string      `json:"templates"`        // text by name; at least one
	Aliases              map[string][]string    `json:"aliases"`          // alias -> names of templates
	NeverInjectSelector  []metav1.LabelSelector `json:"neverInjectSelector"`
	AlwaysInjectSelector []metav1.LabelSelector `json:"alwaysInjectSelector"` // NeverInjectSelector takes precedence
	InjectedAnnotations  map[string]string      `json:"injectedAnnotations"`  // added to each injected Pod

	parsed        map[string]parsed
	never, always []labels.Selector
	values        values
	allValues     map[string]any
	overlays      *overlays
	compliance    string // value of COMPLIANCE_POLICY, for proxies
}

// parsed is a parsed template, or the error of a template that does not parse. Other templates of the ConfigMap stay
// usable.
type parsed struct {
	template *template.Template
	directs  bool // its text or the values have directives of strategic merge patches
	err      error
}

// values contains the fields of the ConfigMap's key values that this package itself uses. Templates read
// Config.allValues.
type values struct {
	Global struct {
		Hub     string `json:"hub"`
		Tag     any    `json:"tag"` // a number if it is not quoted
		Variant string `json:"variant"`
		Network string `json:"network"`
		Logging struct {
			Level string `json:"level"` // log level of the agent
		} `json:"logging"`
		Proxy struct {
			Image   string   `json:"image"`
			Allowed []string `json:"allowedImages"` // values for sidecar.istio.io/proxyImage; empty allows any image
			Hold    bool     `json:"holdApplicationUntilProxyStarts"`
		} `json:"proxy"`
		ProxyInit struct {
			Image string `json:"image"`
		} `json:"proxy_init"`
		MultiCluster struct {
			ClusterName string `json:"clusterName"`
		} `json:"multiCluster"`
	} `json:"global"`
	SidecarInjectorWebhook struct {
		RewriteAppHTTPProbe bool   `json:"rewriteAppHTTPProbe"`
		Canary              canary `json:"canary"`
	} `json:"sidecarInjectorWebhook"`
}

func (v values) holds() bool { return v.Global.Proxy.Hold }

// ParseConfig parses the keys config and values of a ConfigMap. The parameter source is the ConfigMap's name in
// messages. The function env returns the values of environment variables, for templates and COMPLIANCE_POLICY. If env
// is nil, all variables are unset. Injections call env concurrently. Without defaultTemplates the default is the
// template sidecar. If a template does not parse and is not a default, ParseConfig returns no error. Problems and the
// injection of Pods that name the template return that error. The Config is nil with an error. Errors:
//
//   - a key is not valid YAML, or a field has the wrong type
//   - the policy is neither enabled nor disabled
//   - a selector, the log level or the canary is invalid
//   - there is no template
//   - a default template is absent or does not parse
func ParseConfig(source, config, valuesText string, env func(string) string) (*Config, error) {
	c := &Config{Source: source, parsed: map[string]parsed{}, overlays: newOverlays()}
	if err := yaml.Unmarshal([]byte(config), c); err != nil {
		return nil, fmt.Errorf("%s, key config: %w", source, err)
	}
	if err := yaml.Unmarshal([]byte(valuesText), &c.values); err != nil {
		return nil, fmt.Errorf("%s, key values: %w", source, err)
	}
	if err := yaml.Unmarshal([]byte(valuesText), &c.allValues); err != nil {
		return nil, fmt.Errorf("%s, key values: %w", source, err)
	}
	if err := c.values.SidecarInjectorWebhook.Canary.check(); err != nil {
		return nil, fmt.Errorf("%s, key values: %w", source, err)
	}
	if level := c.values.Global.Logging.Level; level != "" {
		if err := isLevel(level); err != nil {
			return nil, fmt.Errorf("%s, key values: global.logging.level: %w", source, err)
		}
	}
	if c.Policy != policyEnabled && c.Policy != policyDisabled {
		return nil, fmt.Errorf("%s, key config: policy %.100q: want %s or %s", source, c.Policy, policyEnabled, policyDisabled)
	}
	if len(c.Templates) == 0 {
		return nil, fmt.Errorf("%s, key config: there is no template", source)
	}
	if len(c.DefaultTemplates) == 0 {
		c.DefaultTemplates = []string{"sidecar"}
	}
	var err error
	if c.never, err = selectors(c.NeverInjectSelector); err != nil {
		return nil, fmt.Errorf("%s, key config: neverInjectSelector%w", source, err)
	}
	if c.always, err = selectors(c.AlwaysInjectSelector); err != nil {
		return nil, fmt.Errorf("%s, key config: alwaysInjectSelector%w", source, err)
	}
	if env != nil {
		c.compliance = env("COMPLIANCE_POLICY")
	}
	funcs := functions(env)
	for name, text := range c.Templates {
		t, err := parseTemplate(name, text, funcs)
		if err != nil {
			err = c.blame(name, err)
		}
		c.parsed[name] = parsed{t, mayDirect(text) || mayDirect(valuesText), err}
	}
	if err := c.defaultsUsable(); err != nil {
		return nil, err
	}
	return c, nil
}

// defaultsUsable returns the errors of unusable or absent default templates.
func (c *Config) defaultsUsable() error {
	var bad []error
	for _, name := range c.resolve(c.DefaultTemplates) {
		if _, err := c.template(name); err != nil {
			bad = append(bad, err)
		}
	}
	return errors.Join(bad...)
}

// Problems returns an error for each template that does not parse, in the order of the templates' names. The result is
// nil if all templates parse.
func (c *Config) Problems() (all []error) {
	for _, name := range sorted(c.parsed) {
		if err := c.parsed[name].err; err != nil {
			all = append(all, err)
		}
	}
	return all
}

// blame adds the names of the ConfigMap and of the template to an error. Line numbers in the error refer to the
// template's text.
func (c *Config) blame(name string, err error) error {
	return fmt.Errorf("%s, key config, templates.%s: %w", c.Source, name, err)
}

func (c *Config) template(name string) (*template.Template, error) {
	p, there := c.parsed[name]
	if !there {
		return nil, fmt.Errorf("%s, key config: there is no template %.100q, only %s", c.Source, name, strings.Join(sorted(c.parsed), ", "))
	}
	return p.template, p.err
}

// templatesOf returns the names of a Pod's templates. They come from the annotation inject.istio.io/templates, or else
// from DefaultTemplates. Aliases are resolved, but not aliases of aliases.
func (c *Config) templatesOf(annotations map[string]string) []string {
	asked, there := annotations[annotation.InjectTemplates.Name]
	if !there {
		return c.resolve(c.DefaultTemplates)
	}
	list := strings.Split(asked, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return c.resolve(list)
}

func (c *Config) resolve(list []string) (all []string) {
	for _, name := range list {
		if others, is := c.Aliases[name]; is {
			all = append(all, others...)
		} else {
			all = append(all, name)
		}
	}
	return all
}

func (c *Config) rewritesProbes(annotations map[string]string) bool {
	if b, err := strconv.ParseBool(annotations[annotation.SidecarRewriteAppHTTPProbers.Name]); err == nil {
		return b
	}
	return c.values.SidecarInjectorWebhook.RewriteAppHTTPProbe
}

func selectors(list []metav1.LabelSelector) (all []labels.Selector, err error) {
	for i := range list {
		s, err := metav1.LabelSelectorAsSelector(&list[i])
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
