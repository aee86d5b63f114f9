// Package bundle builds the live page: it bundles our sources and third-party packages into the few files that a
// browser loads. The same input gives the same bytes.
package bundle

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// Assets is the folder of the files in the repository.
const Assets = "internal/daemon/web/assets"

// copied are the files that are copied unchanged.
var copied = []string{"index.html", "icon.svg"}

// Make returns the files of the page by name, built from the sources in a folder.
func Make(web string) (map[string][]byte, error) {
	packages, err := Packages(web)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, name := range copied {
		if out[name], err = os.ReadFile(filepath.Join(web, "src", name)); err != nil {
			return nil, err
		}
	}
	for entry, name := range map[string]string{"main.js": "app.js", "app.css": "app.css"} {
		if out[name], err = build(filepath.Join(web, "src"), entry, packages); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func build(src, entry string, packages map[string]Package) ([]byte, error) {
	src, err := filepath.Abs(src)
	if err != nil {
		return nil, err
	}
	r := api.Build(api.BuildOptions{
		AbsWorkingDir: src, EntryPoints: []string{entry}, Bundle: true, Write: false, Outdir: "out",
		Format: api.FormatESModule, Target: api.ES2022, Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsNone,
		MinifySyntax: true, MinifyWhitespace: true, MinifyIdentifiers: true, TsconfigRaw: "{}",
		Plugins: []api.Plugin{inArchives(packages)},
	})
	for _, e := range r.Errors {
		err = errors.Join(err, fmt.Errorf("%s: %s", where(e.Location), e.Text))
	}
	for _, w := range r.Warnings {
		err = errors.Join(err, fmt.Errorf("%s: %s", where(w.Location), w.Text))
	}
	if err == nil && len(r.OutputFiles) != 1 {
		err = fmt.Errorf("%s becomes %d files", entry, len(r.OutputFiles))
	}
	if err != nil {
		return nil, err
	}
	return r.OutputFiles[0].Contents, nil
}

func where(l *api.Location) string {
	if l == nil {
		return "esbuild"
	}
	return fmt.Sprintf("%s:%d", l.File, l.Line)
}

// inArchives resolves imports from packages.
func inArchives(packages map[string]Package) api.Plugin {
	const space = "npm"
	return api.Plugin{Name: space, Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: `^[a-z]`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			if a.Kind == api.ResolveEntryPoint {
				return api.OnResolveResult{}, nil
			}
			name, file, _ := strings.Cut(a.Path, "/")
			p, ok := packages[name]
			if !ok {
				return api.OnResolveResult{}, fmt.Errorf("%s is not in package-lock.json", name)
			}
			if file == "" {
				file = p.Module
			}
			return api.OnResolveResult{Path: path.Join(name, file), Namespace: space}, nil
		})
		b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: space}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			name, file, _ := strings.Cut(a.Path, "/")
			text, ok := packages[name].Files[file]
			if !ok {
				return api.OnLoadResult{}, fmt.Errorf("%s has no file %s", name, file)
			}
			content, loader := string(text), api.LoaderJS
			if path.Ext(file) == ".css" {
				loader = api.LoaderCSS
			}
			return api.OnLoadResult{Contents: &content, Loader: loader}, nil
		})
	}}
}
