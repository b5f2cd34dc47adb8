package volume

import (
	"fmt"
	"os"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/testcluster/podenv"
)

// file is one file of a volume; its path is relative to the volume.
type file struct {
	data string
	mode os.FileMode
}

type files map[string]file

// add adds a file. The error reports that the path is not relative or leaves the volume, which the API server refuses
// too.
func (f files) add(name, data string, mode *int32, fallback os.FileMode) error {
	if clean := path.Clean(name); path.IsAbs(name) || clean == ".." ||
		strings.HasPrefix(clean, "../") || strings.HasPrefix(clean, "..data") || clean == "." {
		return fmt.Errorf("path %q of a volume", name)
	}
	if mode != nil {
		fallback = os.FileMode(*mode)
	}
	f[path.Clean(name)] = file{data, fallback}
	return nil
}

func modeOr(mode *int32, fallback os.FileMode) os.FileMode {
	if mode != nil {
		return os.FileMode(*mode)
	}
	return fallback
}

// keys adds the keys of a ConfigMap or Secret: those of items at their paths, or all.
func (f files) keys(what string, data map[string]string, items []corev1.KeyToPath, mode os.FileMode, optional *bool) error {
	if len(items) == 0 {
		for name, value := range data {
			if err := f.add(name, value, nil, mode); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("%s: references non-existent key: %s", what, item.Key)
		}
		if err := f.add(item.Path, value, item.Mode, mode); err != nil {
			return err
		}
	}
	return nil
}

func (f files) configMap(namespace, name string, items []corev1.KeyToPath, mode os.FileMode, optional *bool, from podenv.Source) error {
	m, err := from.ConfigMap(namespace, name)
	if err != nil {
		if optional != nil && *optional {
			return nil
		}
		return err
	}
	data := map[string]string{}
	for k, v := range m.Data {
		data[k] = v
	}
	for k, v := range m.BinaryData {
		data[k] = string(v)
	}
	return f.keys("configmap "+name, data, items, mode, optional)
}

func (f files) secret(namespace, name string, items []corev1.KeyToPath, mode os.FileMode, optional *bool, from podenv.Source) error {
	s, err := from.Secret(namespace, name)
	if err != nil {
		if optional != nil && *optional {
			return nil
		}
		return err
	}
	data := map[string]string{}
	for k, v := range s.Data {
		data[k] = string(v)
	}
	return f.keys("secret "+name, data, items, mode, optional)
}

func (f files) downward(pod *corev1.Pod, status corev1.PodStatus, items []corev1.DownwardAPIVolumeFile, mode os.FileMode) error {
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = podenv.Field(pod, status, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = podenv.Resource(pod, nil, item.ResourceFieldRef)
		default:
			err = fmt.Errorf("downward API: %s has neither a field nor a resource", item.Path)
		}
		if err == nil {
			err = f.add(item.Path, text, item.Mode, mode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
