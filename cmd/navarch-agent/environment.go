package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// vmFiles are the environment files that `istioctl x workload entry configure` and Istio's packages install on a
// machine. As in Istio's start script, variables of the later file take precedence.
var vmFiles = []string{"/var/lib/istio/envoy/sidecar.env", "/var/lib/istio/envoy/cluster.env"}

// environment returns variables as rows "KEY=value". First come the rows of the files, then the rows in process, the
// environment of this process. Later rows take precedence. If no files are given, environment reads vmFiles, and skips
// those that are absent or may not be read. Errors: a file that cannot be read for another reason, or a row that
// parseEnv rejects.
func environment(files, process []string) ([]string, error) {
	asked := len(files) > 0
	if !asked {
		files = vmFiles
	}
	var all []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if !asked && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("environment file: %w", err)
		}
		rows, err := parseEnv(string(text))
		if err != nil {
			return nil, fmt.Errorf("environment file %s: %w", name, err)
		}
		all = append(all, rows...)
	}
	return append(all, process...), nil
}

// parseEnv parses rows KEY=value as a shell would, but expands nothing. Values may be in single or double quotes. The
// error names the line that is not KEY=value or has an invalid value (unquote).
func parseEnv(text string) ([]string, error) {
	var rows []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, raw, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		key = strings.TrimLeft(key, " \t")
		if !ok || key == "" || strings.ContainsAny(key, " \t'\"$`\\\x00") {
			return nil, fmt.Errorf("line %d: want KEY=value", i+1)
		}
		value, err := unquote(raw)
		if err != nil {
			return nil, fmt.Errorf("line %d: value of %s: %w", i+1, key, err)
		}
		rows = append(rows, key+"="+value)
	}
	return rows, nil
}

// unquote removes the quotes and backslashes of one shell word, which may join quoted and plain pieces. Errors: an open
// quote, a backslash at the end, a blank outside of quotes, or a character that a shell would expand or interpret.
func unquote(raw string) (string, error) {
	var out strings.Builder
	for rest := raw; rest != ""; {
		switch c := rest[0]; c {
		case '\'':
			piece, after, ok := strings.Cut(rest[1:], "'")
			if !ok {
				return "", errors.New("a quote is not closed")
			}
			out.WriteString(piece)
			rest = after
		case '"':
			n, err := doubleQuoted(&out, rest[1:])
			if err != nil {
				return "", err
			}
			rest = rest[1+n:]
		case ' ', '\t':
			if tail := strings.TrimLeft(rest, " \t"); tail != "" && tail[0] != '#' {
				return "", errors.New("a blank outside of quotes")
			}
			rest = ""
		case '$', '`', ';', '&', '|', '<', '>', '(', ')', 0:
			return "", fmt.Errorf("%q outside of quotes: nothing is expanded here", c)
		case '\\':
			if len(rest) < 2 {
				return "", errors.New("a backslash at the end")
			}
			out.WriteByte(rest[1])
			rest = rest[2:]
		default:
			out.WriteByte(c)
			rest = rest[1:]
		}
	}
	return out.String(), nil
}

// doubleQuoted writes the text before the closing quote to out. It returns the number of bytes read, including that
// quote. Errors: no closing quote, or a character that a shell would expand.
func doubleQuoted(out *strings.Builder, text string) (int, error) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1, nil
		case c == '$' || c == '`' || c == 0:
			return 0, fmt.Errorf("%q in double quotes: nothing is expanded here", c)
		case c == '\\' && i+1 < len(text) && strings.IndexByte("\"\\$`", text[i+1]) >= 0:
			i++
			out.WriteByte(text[i])
		default:
			out.WriteByte(c)
		}
	}
	return 0, errors.New("a quote is not closed")
}

// meshDefaults returns defaultConfig of a mesh configuration file as YAML. istioctl writes such a file for a machine.
// The result is empty if path is empty, or the file or its defaultConfig is absent. Errors: the file cannot be read or
// is not YAML of the expected form.
func meshDefaults(path string) (string, error) {
	text, err := os.ReadFile(path)
	if path == "" || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("mesh configuration: %w", err)
	}
	var mesh struct {
		DefaultConfig map[string]any `json:"defaultConfig"`
	}
	if err := yaml.Unmarshal(text, &mesh); err != nil {
		return "", fmt.Errorf("mesh configuration %s: %w", path, err)
	}
	if len(mesh.DefaultConfig) == 0 {
		return "", nil
	}
	out, err := yaml.Marshal(mesh.DefaultConfig)
	return string(out), err
}
