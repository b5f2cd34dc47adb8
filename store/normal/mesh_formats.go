package normal

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// checkLogFormats removes invalid formats of access logs. With an invalid format, the Envoys of all proxies would
// refuse listeners. Istio's default format replaces a removed format. In a provider's logFormat.labels, only the
// invalid entries are removed.
func checkLogFormats(r *report, config *meshv1.MeshConfig) {
	text := config.GetAccessLogFormat()
	err := model.CheckLogFormat(text)
	if fields := (map[string]any{}); config.GetAccessLogEncoding() == meshv1.MeshConfig_JSON {
		err = nil
		if json.Unmarshal([]byte(text), &fields) == nil { // if the text is not JSON, the default format applies, as in Istio
			err = logValueFault(fields)
		}
	}
	if err != nil {
		r.defaultFormat("data.mesh.accessLogFormat", err)
		config.AccessLogFormat = ""
	}
	for i, p := range config.GetExtensionProviders() {
		at := fmt.Sprintf("data.mesh.extensionProviders[%d]", i)
		if file := p.GetEnvoyFileAccessLog().GetLogFormat(); file != nil {
			at += ".envoyFileAccessLog.logFormat"
			r.logLabels(at, file.GetLabels())
			if err := model.CheckLogFormat(file.GetText()); err != nil {
				r.defaultFormat(at+".text", err)
				p.GetEnvoyFileAccessLog().LogFormat = nil
			}
		}
		if otel := p.GetEnvoyOtelAls().GetLogFormat(); otel != nil {
			at += ".envoyOtelAls.logFormat"
			r.logLabels(at, otel.GetLabels())
			if err := model.CheckLogFormat(otel.GetText()); err != nil {
				r.defaultFormat(at+".text", err)
				otel.Text = ""
			}
		}
	}
}

// defaultFormat reports an invalid format, which Istio's default format replaces.
func (r *report) defaultFormat(at string, err error) {
	r.refusef(problem.Invalid, at, "%v: Envoy would refuse listeners; Istio's default format applies", err)
}

// logLabels reports and removes the entries of logFormat.labels whose formats Envoy would refuse.
func (r *report) logLabels(at string, labels *structpb.Struct) {
	for _, name := range sortedKeys(labels.GetFields()) {
		if err := logValueFault(labels.Fields[name].AsInterface()); err != nil {
			field := fmt.Sprintf("%s.labels[%s]", at, name)
			r.refusef(problem.Invalid, field, "%v: Envoy would refuse listeners; the label is left out", err)
			delete(labels.Fields, name)
		}
	}
}

// logValueFault checks each string in a JSON value as a log format. It returns the first fault, or nil.
func logValueFault(value any) error {
	switch value := value.(type) {
	case string:
		return model.CheckLogFormat(value)
	case []any:
		for _, one := range value {
			if err := logValueFault(one); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range sortedKeys(value) {
			if err := logValueFault(value[name]); err != nil {
				return err
			}
		}
	}
	return nil
}
