package extension

import (
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Build encodes the configuration under the name in the patch's value. It fails if the value does not decode, has no
// typed_config, or would be refused by Envoy. The error is then a model.Problem that names the EnvoyFilter.
func (a Added) Build() (*xds.Resource, error) {
	config := &corev3.TypedExtensionConfig{}
	if err := patch.Decode(a.Patch, config); err != nil {
		return nil, err
	}
	err := patch.Check(config)
	if err == nil && config.GetTypedConfig() == nil {
		err = errors.New("typed_config is missing")
	}
	if err != nil {
		return nil, patch.Refused(a.Patch, err)
	}
	return xds.Encode(xds.Extension, config.Name, config)
}

// Effective returns the patch that adds the configuration, even if Build fails.
func (a Added) Effective() []model.Patch { return []model.Patch{a.Patch} }
