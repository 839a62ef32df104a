use carlos_tests_reads::World;

#[tokio::test]
async fn smoke() {
    let world = World::new().await;
    let console = world.console().await;
    let _uk = world.start_box("uk-1").await;
    console.query(&world, World::SQL).await.printed(World::TSV);
}
