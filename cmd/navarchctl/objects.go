package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

// readObjects reads the objects in the files of the flag -f, in the order of the files. It fails if a file cannot be
// read, if a document is not a valid object, or if the files contain no objects. Errors name the flag and the file. For
// an invalid object, they also name the document.
func readObjects(paths []string, stdin io.Reader) ([]*object.Object, error) {
	all, err := files.InOrder(paths, stdin)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no object in %s", strings.Join(paths, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	return all, nil
}

// metadataOf returns the namespace and the labels in the JSON of an object. They are empty if the JSON lacks them. It
// is an error if the JSON cannot be decoded. The error does not name the object.
func metadataOf(o *object.Object) (namespace string, labels map[string]string, err error) {
	var stated struct {
		Metadata struct {
			Namespace string
			Labels    map[string]string
		}
	}
	err = json.Unmarshal(o.JSON, &stated)
	return stated.Metadata.Namespace, stated.Metadata.Labels, err
}
