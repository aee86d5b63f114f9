// Site of the documents, for VitePress. tools/scripts/site copies the documents to src. Dead links and missing pictures fail.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { defineConfig } from 'vitepress'

const src = 'src'

// page returns the entry of a page, with its title.
function page(file: string) {
  const title = readFileSync(join(src, file), 'utf8').match(/^# (.*)/m)
  return { text: title ? title[1] : file, link: '/' + file.replace(/README\.md$/, '').replace(/\.md$/, '') }
}

// section returns the entry of a folder with all of its pages.
function section(text: string, folder: string) {
  const files = readdirSync(join(src, folder)).filter((f) => f.endsWith('.md'))
  return { text, collapsed: true, items: files.sort().map((f) => page(join(folder, f))) }
}

// adapt shows links to files that are no pages, such as licences, as text, and indented code like fenced code.
function adapt(md: any) {
  md.core.ruler.push('adapt', (state: any) => {
    for (const block of state.tokens) {
      if (block.type === 'code_block') Object.assign(block, { type: 'fence', info: 'txt' })
      let file = false
      for (const t of block.children ?? []) {
        const href = t.type === 'link_open' ? t.attrGet('href') : ''
        if (t.type === 'link_open') {
          file = !/^([a-z]+:|#)/.test(href) && !/\.md(#|$)/.test(href)
          if (file && !existsSync(join('../..', dirname(state.env.relativePath), href))) {
            throw new Error(`${state.env.relativePath}: dead link ${href}`)
          }
        }
        if (file && (t.type === 'link_open' || t.type === 'link_close')) {
          Object.assign(t, { type: t.type.replace('link', 'span'), tag: 'span', attrs: null })
        }
      }
    }
  })
}

export default defineConfig({
  title: 'roced',
  description: 'A RoCEv2 network card in software',
  srcDir: src,
  outDir: '../site',
  rewrites: { 'README.md': 'index.md', 'docs/README.md': 'docs/index.md' },
  markdown: { html: false, config: adapt },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [{ text: 'Documentation', link: '/docs/' }, { text: 'Changes', link: '/CHANGELOG' }],
    sidebar: [
      { text: 'roced', link: '/' },
      { text: 'Which page answers which question', link: '/docs/' },
      section('Tutorials', 'docs/tutorials'),
      section('Guides', 'docs/guides'),
      section('Reference', 'docs/reference'),
      section('Design', 'docs/design'),
      section('Results', 'docs/results'),
      page('docs/ARCHITECTURE.md'),
      page('docs/glossary.md'),
      page('CONTRIBUTING.md'),
    ],
  },
})
