package normal

import (
	"fmt"
	"strings"
	"testing"
)

// A format of access logs that Envoy refuses is replaced by the default, or its label is left out. The rest of the mesh
// configuration applies.
func TestLogFormats(t *testing.T) {
	for text, good := range map[string]bool{"%REQ(:METHOD)% %REQ_WITHOUT_QUERY(:PATH)%": true, "%START_TIME(%Y)% 100%%": true,
		"100%": false, "%NO_SUCH_COMMAND%": false, "%REQ()%": false} {
		for _, mesh := range []string{
			`accessLogFormat: "%s"`,
			`{accessLogEncoding: JSON, accessLogFormat: '{"a": {"b": "%s"}}'}`,
			`extensionProviders: [{name: a, envoyFileAccessLog: {path: /dev/stdout, logFormat: {text: "%s"}}}]`,
			`extensionProviders: [{name: a, envoyFileAccessLog: {path: /dev/stdout, logFormat: {labels: {x: "%s"}}}}]`,
			`extensionProviders: [{name: a, envoyOtelAls: {service: a.b, port: 1, logFormat: {text: "%s"}}}]`,
			`extensionProviders: [{name: a, envoyOtelAls: {service: a.b, port: 1, logFormat: {labels: {x: "%s"}}}}]`,
		} {
			mesh = fmt.Sprintf(mesh, text)
			got := testNormal.ParseMesh(read(t, meshMap(mesh, "{}")))
			switch {
			case got.Config == nil:
				t.Errorf("%s: the mesh configuration is refused: %v", mesh, got.Problems)
			case len(got.Problems) == 0 != good, strings.Contains(got.Config.String(), text) != good:
				t.Errorf("%s: %v, problems %v", mesh, got.Config, got.Problems)
			}
		}
	}
}
